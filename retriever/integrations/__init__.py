"""An index in other frameworks: LangChain, LlamaIndex, Haystack, MTEB; one module for each.

Each imports its framework at the top and is imported by those who use that framework.
"""
