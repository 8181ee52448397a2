"""Alerts: what the rules read, who is told, what people see and silence. The rules are in model/alert_rules.py."""
