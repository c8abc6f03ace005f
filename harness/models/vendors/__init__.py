"""Models of other vendors: one adapter over the model layer of `pydantic-ai-slim`.

`vendors` is the table of them, `model` the `ChatModel`. Everything that imports the library is
behind `connection`, which is imported in a thread when such a model is first asked.
"""
