"""The step loop: phases, routing, tool execution, interrupts, events."""
