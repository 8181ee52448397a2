"""WARC files (ISO 28500): archived pages out of a project, and other people's crawls into one.

    writing.py   pages as records of a file
    packing.py   the bytes of any file, unpacked
    reading.py   its records, damaged ones too
    pages.py     records understood as pages
    taking.py    pages into the archive and the log of pages

They are written and read here, not by a library: a file from elsewhere is hostile input, and every length in it needs a
limit; and headers go out with the bytes they came with.
"""
