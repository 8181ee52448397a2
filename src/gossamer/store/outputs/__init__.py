"""Outputs: records written to targets of the user as they change. contract.py says what a target must do, plan.py which
record becomes which row, follow.py how the records are followed."""
