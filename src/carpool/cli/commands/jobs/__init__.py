"""Commands about jobs: submitting, watching, changing and ending them."""
