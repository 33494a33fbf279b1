"""Texts on which the ranges of int8 are measured: of many subjects, lengths and forms.

They are part of the program, so that one model has the same int8 vectors in every index, whatever
the index holds and in whatever order it was filled.
"""

from __future__ import annotations

_SENTENCES = (
    "The river froze twice that winter, and the ferry did not run until the middle of March.",
    "A binary search halves the interval at each step, so it needs about log2(n) comparisons.",
    "Patients who took the drug for eight weeks reported fewer headaches than the control group.",
    "Add the flour slowly, stir until the dough is smooth, and let it rest for half an hour.",
    "In 1969 two astronauts walked on the moon while a third waited in orbit.",
    "The court held that the contract was void because neither party had signed the annex.",
    "Photosynthesis turns carbon dioxide and water into sugar, and releases oxygen.",
    "Her second album sold 2.4 million copies and won three awards in the same year.",
    "To delete a branch that is not merged, run git branch -D followed by its name.",
    "The goalkeeper saved the penalty, but the rebound fell to the striker, who scored.",
    "Inflation rose to 4.7% in the third quarter, mostly because of higher energy prices.",
    "What is the capital of Mongolia?",
    "The cathedral's north tower was finished in 1432; the south tower never was.",
    "A prime number has exactly two divisors: 1 and itself.",
    "The train to Lisbon leaves at 07:45 from platform 6 and takes just under three hours.",
    "Mutations in this gene impair the repair of DNA and raise the risk of several tumors.",
    "She closed the door, hung up her wet coat, and listened to the rain on the roof.",
    "The committee will publish its findings, with all supporting data, by the end of June.",
    "Install the package with pip, then import it and call main() with the path of your file.",
    "Octopuses have three hearts, blue blood and a nervous system spread through their arms.",
    "how to remove a stripped screw from soft wood",
    "The treaty of 1648 ended thirty years of war and redrew the borders of central Europe.",
    "If the warning light stays on after the engine starts, check the oil level at once.",
    "Venus turns so slowly that its day is longer than its year.",
    "Our return policy covers unused items in the original box for 30 days after delivery.",
    "The violin enters in the ninth bar, an octave above the theme that the cello introduced.",
    "Insulin lowers the concentration of glucose in the blood by helping cells to absorb it.",
    "An index on the column customer_id made the query forty times as fast.",
    "He was elected mayor in 1998, lost in 2002 by 113 votes, and never ran again.",
    "Earthquakes along this fault have been recorded since 1857, the largest of magnitude 7.9.",
    "best time of year to plant tulip bulbs",
    "The novel follows four generations of a family of shipbuilders on the Baltic coast.",
    "Error 404: the page that you asked for was moved or does not exist.",
    "Limestone dissolves slowly in rain, which is how most large caves are formed.",
    "The board approved a dividend of $0.35 a share, payable on September 15.",
    "Vaccinated calves gained weight faster and needed fewer antibiotics (p < 0.01).",
    "Turn left at the post office, walk past the school, and you will see the museum.",
    "Is it possible to learn two languages at the same time?",
    "The painter mixed sand into the ground so that the light would catch the surface.",
    "A hash table finds a key in constant time on average, and in linear time at worst.",
    "Der Zug nach Wien hat heute wegen eines Unwetters zwanzig Minuten Verspätung.",
    "The bridge carries 60,000 vehicles a day and was built for a third of that number.",
    "Bees tell each other where food is by dancing on the vertical comb.",
    "Minutes of the last meeting were read and approved without changes.",
    "The samples were heated to 95 °C for ten minutes, cooled on ice and centrifuged.",
    "symptoms of vitamin B12 deficiency in older adults",
    "Water expands when it freezes, so pipes that are not drained may burst.",
    "The film cost little, ran for two years in one cinema, and made its director famous.",
    "A cold front will cross the islands tonight, with gusts of up to 90 km/h.",
    "Parliament passed the bill by 312 votes to 289 after a debate of eleven hours.",
    "El museo abre de martes a domingo y la entrada es gratuita los jueves.",
    "Two trains start at the same time from towns that are 240 miles apart.",
    "The enzyme is most active at pH 7.4 and loses half of its activity at pH 6.",
    "Please find attached the invoice for October; payment is due within 14 days.",
    "The orchid lives on tree branches and takes its water from the air.",
    "def area(radius): return 3.14159 * radius ** 2",
    "Sailors once found their latitude by the height of the noon sun above the horizon.",
    "Who wrote the music for the first performance, and who conducted it?",
    "The mill closed in 1986, and the valley lost a quarter of its people within ten years.",
    "Sound travels about four times as fast in water as it does in air.",
    "Users with read access can list the files of a project but cannot change them.",
    "The vaccine is stored between 2 and 8 degrees Celsius and must not be frozen.",
    "No evidence was found that the device reduces noise below 100 Hz.",
    "After the siege the city walls were pulled down, and gardens were planted in their place.",
)
_LONG = 8
_STEP = 4


def calibration_texts() -> list[str]:
    """The sentences one by one, and passages of eight of them from all over the list."""
    starts = range(0, len(_SENTENCES), _STEP)
    passages = [
        " ".join(_SENTENCES[(start + 13 * place) % len(_SENTENCES)] for place in range(_LONG))
        for start in starts
    ]
    return [*_SENTENCES, *passages]
