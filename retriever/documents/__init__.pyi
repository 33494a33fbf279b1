"""The names of `retriever.documents`; `__init__.py` imports each on first use."""

from retriever.documents.analyzer import Analyzer as Analyzer
from retriever.documents.analyzer import AnalyzerSettings as AnalyzerSettings
from retriever.documents.document import Document as Document
from retriever.documents.document import Fields as Fields
from retriever.documents.passages import PassageSettings as PassageSettings
from retriever.documents.passages import cut_document as cut_document
from retriever.documents.passages import passage_text as passage_text
from retriever.documents.places import find_part as find_part
from retriever.documents.reader import CorpusReader as CorpusReader
from retriever.documents.sentences import sentence_spans as sentence_spans
from retriever.documents.sources import Meter as Meter
from retriever.documents.sources import TextForm as TextForm
from retriever.documents.sources import TextLines as TextLines
from retriever.documents.sources import base_name as base_name
from retriever.documents.sources import path_on_disk as path_on_disk
