"""The pipeline: from the items that a spider yields to the stored records.

Reading order: steps.py (`Pipeline`: clean, validate, the spider's own steps, deduplicate, inspect), clean.py (texts),
inspection.py (the quality rules applied to the items of a page, and the counts for the score), quality_rules.py (the
built-in rules), quality_guard.py (stops storing when too many items are faulty), near_duplicates.py (a step that a
spider may add).
"""
