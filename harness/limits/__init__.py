"""Limits of a whole run tree: budgets, prices, and the ledger of usage."""
