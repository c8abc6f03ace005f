"""What every store promises: one function a promise. `harness.store.conformance` runs them."""
