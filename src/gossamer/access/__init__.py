"""Who may use a project over HTTP: keys, stored responses for repeated requests, the audit log."""
