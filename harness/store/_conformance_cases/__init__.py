"""Conformance cases of stores, one function each. `harness.store.conformance` runs them."""
