"""Sessions of the handshake era that every replica can serve, whichever replica began them."""
