"""Operations: health and metrics, shutdown, and runs on the command line."""
