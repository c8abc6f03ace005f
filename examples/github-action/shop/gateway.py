"""The bank's gateway."""


class Timeout(Exception):
    """The gateway did not answer in time; it may have booked all the same."""


def book(order: str, cents: int, key: str = "") -> str:
    """Book an amount. Bookings with the same key are made once."""
    return f"{order}:{cents}:{key}"
