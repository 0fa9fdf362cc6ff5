"""Commands about models: registering and serving them."""
