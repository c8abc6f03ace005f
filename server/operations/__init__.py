"""Operations: health, metrics, shutdown, and administration of runs on the command line."""
