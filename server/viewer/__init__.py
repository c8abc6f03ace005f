"""The page that shows runs: to a browser at `/ui`, and inside hosts of MCP Apps as a resource.

It is one document without a framework and without anything from elsewhere. All it knows it asks
for with the tools that clients have, so what holds for them (who may see and decide what, limits)
holds for it; there is no second interface.
"""
