"""Install: adds this server to MCP clients, as one entry in each client's file."""
