"""What middleware can do: its hooks, their requests and results, and how hooks are called."""
