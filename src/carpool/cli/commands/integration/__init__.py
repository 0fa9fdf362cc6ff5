"""Commands for what starts jobs in Carpool's place: shells, containers, notebooks, Kubernetes."""
