"""Who may use a project over HTTP: keys, answers that are given again, the audit log."""
