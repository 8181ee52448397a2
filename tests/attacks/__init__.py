"""What attackers try, one file for each attacker of the threat model in docs/security.md. Each file begins with the
list of what was tried; what is not in the list was not tried here."""
