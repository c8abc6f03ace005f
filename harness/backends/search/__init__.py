"""Search: globs, expressions and ignore rules, and ripgrep where it is installed."""
