"""Finds out whether a journal is damaged, and saves what can be read of one that is."""

from .examination import JournalReport, check_journal
from .rescue import SalvagedThread, salvage_journal

__all__ = ["JournalReport", "SalvagedThread", "check_journal", "salvage_journal"]
