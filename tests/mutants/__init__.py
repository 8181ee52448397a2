"""`make mutants`: do the tests notice a small change of the code?"""
