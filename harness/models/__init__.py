"""Chat models: the protocol, names of models, and adapters for vendors."""
