"""The names of `retriever.encoders.meta`; `__init__.py` imports each on first use."""

from retriever.encoders.meta.attention import MetaEpoch as MetaEpoch
from retriever.encoders.meta.fitting import fit_meta as fit_meta
from retriever.encoders.meta.model import FORM as FORM
from retriever.encoders.meta.model import read_folder as read_folder
from retriever.encoders.meta.settings import MetaSettings as MetaSettings
from retriever.encoders.meta.settings import Method as Method
from retriever.encoders.meta.settings import UnsupSettings as UnsupSettings
