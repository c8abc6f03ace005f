"""What operators see and do: health and metrics, a server's end, and runs on the command line."""
