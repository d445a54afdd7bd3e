"""What a server offers by HTTP: who may use it, the API, metrics, and the server itself."""
