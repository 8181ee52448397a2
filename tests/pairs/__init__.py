"""Features of the product two at a time: stories of a site, a spider, settings and commands, and a model that says what
must come of them."""
