"""Evaluation: which encoder, ranking or reranker is better, by how much, and how sure that is.

Each experiment is one function that takes data and settings and returns a result with `text()`,
`to_json()` and `write(folder)`:

>>> from eval import QASettings, rank_systems
>>> result = rank_systems("wikiqa", ["bm25", "cosine", "hybrid:tuned"])   # doctest: +SKIP
>>> print(result.text())                                                  # doctest: +SKIP

`progress` is called at each stage (see `Progress`), and `notify` with lines that a person should
read; the report of a result names `command` as what reproduces it. Settings of None are the
defaults, and an empty encoder is the bundled model.

Importing this package imports neither torch, scikit-learn, scipy nor matplotlib.
"""

from eval.datasets.classification import ClassificationTask as ClassificationTask
from eval.datasets.classification import read_classification as read_classification
from eval.datasets.classification import read_probing as read_probing
from eval.datasets.pairs import ScoredPairs as ScoredPairs
from eval.datasets.pairs import STSTask as STSTask
from eval.datasets.pairs import read_pairs as read_pairs
from eval.datasets.pairs import read_sts as read_sts
from eval.datasets.probing import ProbingFiles as ProbingFiles
from eval.datasets.probing import ProbingSettings as ProbingSettings
from eval.datasets.probing import make_probing as make_probing
from eval.datasets.question_forms import read_question_set as read_question_set
from eval.datasets.question_set import Question as Question
from eval.datasets.question_set import QuestionSet as QuestionSet
from eval.figures import check_figure as check_figure
from eval.figures import save_figure as save_figure
from eval.inspect.layers import LayerInspection as LayerInspection
from eval.inspect.layers import inspect_layers as inspect_layers
from eval.inspect.weights import MetaInspection as MetaInspection
from eval.inspect.weights import WeightInspection as WeightInspection
from eval.inspect.weights import inspect_meta as inspect_meta
from eval.inspect.weights import inspect_weights as inspect_weights
from eval.inspect.weights import is_meta as is_meta
from eval.inspect.weights import sbert_wk_form as sbert_wk_form
from eval.inspect.words import WordInspection as WordInspection
from eval.inspect.words import inspect_words as inspect_words
from eval.layers.evaluation import LayerSearchResult as LayerSearchResult
from eval.layers.evaluation import search_layers as search_layers
from eval.layers.protocol import LayerSearchSettings as LayerSearchSettings
from eval.metrics.comparison import Comparison as Comparison
from eval.metrics.comparison import Difference as Difference
from eval.metrics.comparison import Score as Score
from eval.metrics.comparison import compare as compare
from eval.metrics.measures import Evaluation as Evaluation
from eval.metrics.measures import canonical_measures as canonical_measures
from eval.metrics.measures import evaluate as evaluate
from eval.metrics.significance import Resampling as Resampling
from eval.metrics.trec import read_qrels as read_qrels
from eval.metrics.trec import read_run as read_run
from eval.metrics.trec import write_run as write_run
from eval.papers import Experiment as Experiment
from eval.papers import experiments as experiments
from eval.progress import Progress as Progress
from eval.qa.evaluation import rank_layers as rank_layers
from eval.qa.evaluation import rank_systems as rank_systems
from eval.qa.rerankers import FittedCrossEncoder as FittedCrossEncoder
from eval.qa.rerankers import FittedReranker as FittedReranker
from eval.qa.rerankers import fit_cross_encoder as fit_cross_encoder
from eval.qa.rerankers import fit_reranker as fit_reranker
from eval.qa.result import QAResult as QAResult
from eval.qa.result import SystemResult as SystemResult
from eval.qa.systems import CrossPlan as CrossPlan
from eval.qa.systems import HeadPlan as HeadPlan
from eval.qa.systems import QASettings as QASettings
from eval.qa.systems import QuestionSettings as QuestionSettings
from eval.reports import Report as Report
from eval.reports import Section as Section
from eval.reports import Table as Table
from eval.reports import check_report_folder as check_report_folder
from eval.sentences.result import SentenceResult as SentenceResult
from eval.sentences.sts import STSSettings as STSSettings
from eval.sentences.sts import score_sts as score_sts
from eval.sentences.supervised import RelatednessSettings as RelatednessSettings
from eval.training.corpus_pairs import CorpusPairs as CorpusPairs
from eval.training.data import EncoderFitSettings as EncoderFitSettings
from eval.training.encoder import FittedEncoder as FittedEncoder
from eval.training.encoder import fit_encoder as fit_encoder
from eval.transfer.evaluation import TransferSettings as TransferSettings
from eval.transfer.evaluation import score_probing as score_probing
from eval.transfer.evaluation import score_transfer as score_transfer
from eval.transfer.layer_search import LayerTransferSettings as LayerTransferSettings
from eval.transfer.protocols import TransferProtocol as TransferProtocol
from eval.vectors import Loading as Loading
from eval.vectors import named_encoders as named_encoders
from retriever.files import default_cache as default_cache
