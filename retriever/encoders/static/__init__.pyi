"""The names of `retriever.encoders.static`; `__init__.py` imports each on first use."""

from retriever.encoders.static.fitting import fit_lsa as fit_lsa
from retriever.encoders.static.fitting import fit_static as fit_static
from retriever.encoders.static.model import FORM as FORM
from retriever.encoders.static.model import StaticModel as StaticModel
from retriever.encoders.static.settings import FITTED as FITTED
from retriever.encoders.static.settings import FitSettings as FitSettings
from retriever.encoders.static.settings import LSASettings as LSASettings
