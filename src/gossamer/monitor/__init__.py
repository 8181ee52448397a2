"""Around the journey: what listens to events and shows a person what is going on. No stage imports it."""
