"""What a person or a program can do with a project: plain async functions and values. The only place that wires."""
