"""The dashboard: pages made on the server. A view is some functions from values of project, and a template for them."""
