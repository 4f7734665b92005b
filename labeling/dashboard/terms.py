"""The terms of the dashboard, each in a sentence or two: what its "?" opens."""

# The heading of the documentation's page “dashboard” that says more of each term.
HEADINGS = {
    "ranking": "ranking",
    "levels": "effects-of-the-levels",
    "tasks": "by-task-and-by-tag-and-what-to-read",
    "tags": "by-task-and-by-tag-and-what-to-read",
    "claims": "claims",
    "race": "evidence-race",
    "heat": "win-rates",
    "allocation": "comparisons-per-policy",
    "people": "people-and-other-judges",
    "doubts": "people-and-other-judges",
    "found": "doubts-about-the-result",
    "repeats": "people-and-other-judges",
    "agreement": "agreement",
    "length": "length",
    "without": "without-each-annotator",
    "flips": "reversals-that-would-change-the-result",
    "improvement": "improvements",
    "family": "improvements",
}

# What an open rival may still be, by the claim to stop on; `wins` is a share such as "55 of 100".
OPEN = {
    "good_enough": "may still be clearly better, that is, win more than {wins} comparisons with the leader.",
    "best": "may still win half of its comparisons with the leader, or more.",
    "best_if_any": "may still beat every other policy.",
}
# What the words for a settled standing mean.
SETTLED = {
    "not clearly better": "wins no more than {wins} comparisons with the leader.",
    "beaten": "wins fewer than half of its comparisons with the leader.",
    "ruled out": "does not beat every other policy.",
    "perhaps as good": "the judgments do not exclude that it is the best.",
    "retired": "nobody is given a pair with it any more.",
}

TERMS = {
    "ranking": (
        "How many of 100 comparisons this policy would win against the leader: an estimate, closer to 50 "
        "where comparisons are few, with a range. Left of the middle: people prefer the leader. All ranges "
        "are correct together, however often you look. The estimates give the order. "
        "Standing: what the evidence has settled. “Open”: nothing yet. “Not clearly better”: the policy "
        "does not beat the leader by more than your margin. “Beaten”: the leader beats it. “Ruled out”: it "
        "does not beat every other policy. “Perhaps as good”: the evidence does not tell it from the winner. "
        "A line may cross the middle although the standing is settled: the proof looks at each rival alone, "
        "the lines must hold for all at once."
    ),
    "levels": (
        "How often a level would be preferred to another level of its factor if everything else were equal. "
        "Right of the middle: people prefer the first one. Grey: the interval includes “no difference”. "
        "The table assumes that each level adds its own effect; the tab Quality warns if the judgments "
        "contradict that."
    ),
    "tasks": (
        "The tasks at which this policy won the smallest share of its comparisons. A tie is half a win. "
        "Tasks with fewer than three comparisons are left out."
    ),
    "tags": (
        "The share of its comparisons on tasks with this tag that a policy won; a tie is half a win. The "
        "last column leaves out policies with fewer than three comparisons there. The claim is about all "
        "tasks."
    ),
    "claims": (
        "The experiment stops on the claim that was chosen at setup. Each claim is made wrongly with a "
        "probability of at most the accepted risk, however often you look. Where people judge and the same "
        "texts come again, that is proven for some cases only: Details says which. A pair that was shown "
        "and has no outcome counts against each claim, so it holds even if pairs are left "
        "unanswered or answered late, unless Details says otherwise. It is about those who judged, each "
        "as often as they did."
    ),
    "race": (
        "The evidence that each policy is not the best, over the comparisons. A line that reaches the dashed "
        "line rules its policy out. Below 0, the judgments speak for the policy."
    ),
    "heat": (
        "How often the row’s policy won against the column’s, in percent, and the number of comparisons. "
        "The pairs are chosen by earlier outcomes, so the rates describe the data; they are not unbiased "
        "estimates."
    ),
    "allocation": (
        "Each policy’s share of the comparisons, beside the share that would be optimal if the current win "
        "rates were exact. A comparison involves two policies, so the shares add up to 200%. The first "
        "comparisons explore, so the two shares approach each other only over time."
    ),
    "people": (
        "A coin decides the sides, so an unbiased judge chooses left about half the time. A bias is marked "
        "where chance alone would show it less than once in a thousand times."
    ),
    "repeats": (
        "Repeats are pairs that a person judged before, shown again with the sides swapped. Gold items are "
        "pairs whose better response is known."
    ),
    "doubts": (
        "Faster than reading: over 1,000 words a minute, in most of the latest 100 answers. For the longer "
        "one: in 95% of those. Same answers as another account: more often than chance, given how often "
        "other people agree. Getting worse: answers that agree with other people, with gold or with the "
        "person's own earlier answers have become rarer. Each of the last two marks would come by chance "
        "less than once in a thousand times."
    ),
    "found": (
        "Exact tests of what people left without an answer, of responses that failed, of early against late "
        "answers, of each person against all others, and of who judged which pairs. In an honest experiment "
        "all of them together find something at most once in a thousand times. They find that something "
        "differs, and not why."
    ),
    "agreement": (
        "Krippendorff’s α compares how often people who judged the same two responses gave different answers "
        "with how often chance would have it. 1 is perfect agreement, 0 is chance. The interval holds 95% of "
        "the values that resampled pairs give. A low α makes an experiment longer, not wrong."
    ),
    "length": (
        "The share of comparisons that the response with more tokens won. Far from half: people choose by "
        "length, or longer answers are better. Read some before you decide which."
    ),
    "without": (
        "The decision without the judgments of one person, with all others replayed in order. It is not a "
        "second experiment: without that person, other pairs would have been chosen."
    ),
    "flips": (
        "The smallest number of judgments whose reversal lets another policy draw level. If it is small, "
        "read those comparisons before you use the result."
    ),
    "improvement": (
        "The share of comparisons in which the champion is expected to be preferred to the original, with a "
        "range. It steers the race and proves nothing: the claim at the end rests on the comparisons of the "
        "last quarter alone. Triangle: a proposal became champion. Cross: one was dropped."
    ),
    "family": (
        "The original, and below each text those that were made from it, with the words that they add and "
        "leave out. The champion is the best so far. Dropped: probably worse than the champion, after a few "
        "comparisons."
    ),
}
