"""The fleet's archive: raw pages in S3 or anything that speaks its language."""
