"""Refunds of orders."""

from gateway import Timeout, book


def refund(order: str, cents: int) -> str:
    """Pay an order back; return the booking."""
    for _ in range(3):
        try:
            # The gateway may have booked before it timed out.
            return book(order, -cents)
        except Timeout:
            continue
    raise Timeout(order)
