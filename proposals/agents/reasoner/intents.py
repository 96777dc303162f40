"""What a clause of a message asks for, by the words around what it names.

A clause is plain words (`spelling.plain`) in which `<mesh>`, `<set>`, `<prop>` and `<op>` stand for what was read from
it.  The first rule that fits counts, so the particular stand before the general.
"""

from __future__ import annotations

import re

#: Verbs of deeds that only a person may do, on the page.
_DEED = (
    r"approve|reject|accept|sign[- ]?off(?: on)?|launch|start|run|submit|deploy|execute|kick[- ]?off|apply|"
    r"merge|delete|schedule|commit"
)
_PLEASE = (
    r"(?:(?:ok|okay|so|now|then|and|just|please|go ahead and|you (?:must|should|have to|need to|will|shall|"
    r"may)|i (?:want|need|order|authori[sz]e) you to|"
    r"can you|could you|would you|will you|let us|i (?:now )?|we (?:now )?|immediately|directly|simply|"
    r"hereby|admin|system|override|do|assistant)[:, ]*)*"
)
_OBJECT = (
    r"(?:<prop>|it|this|that|them|these|all|everything|the (?:job|run|training|mesh|change|first|second|third|"
    r"proposals?|experiment|plan|workload|cluster)|<mesh>|a (?:job|run)|training|job|for me|yourself|\d)"
)

RULES: tuple[tuple[str, str], ...] = (
    ("injection",
        r"\b(?:ignore|disregard|forget|bypass|override|skip|disable|violate)\b.{0,40}\b(?:rules?|instructions?|"
        r"prompts?|guidelines?|polic(?:y|ies)|safety|checks?|review(?:er)?s?|restrictions?|guardrails?)\b"
        r"|\byou are now\b|\bsystem prompt\b|\bpretend\b|\bjailbreak\b|\bdeveloper mode\b|\bact "
        r"as\b|\b(?:reveal|print|show) (?:me )?(?:your|the) (?:prompt|instructions|api key|"
        r"secret|key|token|password)"
        r"|\b(?:say|claim|tell (?:them|everyone|me)|state|write|report|answer) (?:that )?(?:you "
        r"are |it is |the confidence is )?(?:100|99|one hundred|a hundred) ?(?:%|percent)|"
        r"\bapproved by\b|\bmark .* as approved\b|\bset .* to approved\b"),
    ("act", (
        rf"^{_PLEASE}(?:{_DEED})\s(?:of\s)?(?:up\s)?{_OBJECT}(?![- ]?(?:numbers|model|through))\b|"
        rf"^{_PLEASE}(?:approve|reject)\b(?!ed)|^(?:lgtm|ship it|do it|go ahead)\b|\b(?:consider|mark|treat) "
        rf"(?:it|this|that|<prop>) (?:as )?(?:approved|accepted|rejected)"
    )),
    ("help", (
        r"^help\b|\bwhat (?:can|could|do) (?:you|i) (?:do|ask|help)|\bwho are you\b|\bwhat are you\b(?! "
        r"(?:sure|missing|waiting|assuming|holding|keeping|not))|\bhow do you work\b|\bare you (?:an? )?(?:ai|"
        r"llm|bot|robot|language model|human|gpt|chatgpt|real|person|machine)\b|\bwhat (?:questions|"
        r"commands)\b|\bhow can you help|\bwhich model are you\b"
    )),
    ("change_mind", (
        r"\bwhat (?:would|could|can|will|does|might|else would)\b.{0,20}\b(?:take|change|make you|convince|"
        r"persuade|turn|tip|sway|need to (?:see|happen|be true))\b|\bchange (?:your|the) (?:mind|view|"
        r"recommendation|opinion|answer|ranking|order)\b|\b(?:under|in) (?:what|which) (?:conditions?|"
        r"circumstances|cases?)\b|\bwhen would\b.{0,30}\b(?:wrong|recommend|prefer|<prop>|differ)|\bwhat (?:if|"
        r"happens if) you are wrong\b|\b(?:flip|overturn|reverse) (?:the|your)\b|\bhow (?:sensitive|robust|"
        r"stable|fragile)\b|\bsensitivit"
    )),
    ("held", (
        r"\b(?:forget|drop|remove|lift|undo|cancel)\b.{0,30}\b(?:constraints?|facts?|conditions?|that|"
        r"everything)\b|\b(?:what|which)\b.{0,30}\b(?:constraints?|assumptions?|facts?)\b|\bwhat (?:do|are) "
        r"you (?:assum|hold|keep|tak)\w*|\b(?:show|list)\b.{0,20}\bconstraints\b|\bwhat (?:did|have) i (?:say|"
        r"said|told|tell)"
    )),
    ("accuracy", (
        r"\bhow (?:accurate|good|reliable|precise|trustworthy|far off|wrong|exact|well "
        r"calibrated)\b.{0,40}\b(?:you|your|predict\w*|estimates?|models?|numbers|these|this|forecasts?)\b|"
        r"\baccura(?:te|cy)\b|\bprediction errors?\b|\btrack record\b|\bcalibrat|\b(?:error|margin)s? (?:of|in|"
        r"on|bars?)\b|\btrust (?:your|the|these|those) (?:numbers|predictions?|models?|estimates?)|\bhave you "
        r"(?:ever )?been (?:wrong|right)|\bhow often (?:are|were) you\b|\bhow do you (?:know|predict|compute|"
        r"estimate|price)\b|\bvalidated\b"
    )),
    ("hold", (
        r"\b(?:do|are|would|will|is) you\b.{0,25}\bstill\b|\bstill\b.{0,20}\b(?:hold|stand|stick|think|believe|"
        r"recommend\w*|confident|sure|most|prefer|<prop>|your|the same|first|say|convinced)\b|\bwithout (?:any "
        r")?(?:further|more|additional|other|new|my) (?:input|information|info|facts|data)\b|\b(?:no|nothing) "
        r"(?:further|more|else|new)\b.{0,15}\b(?:input|information|add|say|tell)|\bstick (?:with|to)\b|\bstand "
        r"by\b|\bfinal answer\b|\bsame (?:recommendation|answer|choice)\b|\bhold (?:to|on to) (?:it|<prop>|"
        r"your)\b|\bdo you hold\b"
    )),
    ("measure", (
        r"\b(?:what|which|anything|something)\b.{0,40}\b(?:measure|profile|record|collect|capture|"
        r"instrument)\b|\bnext (?:experiment|measurement|profile|step|run|thing|action)s?\b|\bwhat "
        r"(?:information|data|facts?|else|input)?\s?(?:is|are|do|does|would)?\s?(?:you )?(?:missing|lack)\b|"
        r"\bwhat .{0,25}\b(?:need|want) (?:from me|to know|more)\b|\bwhat (?:do you|is it you|you do) not "
        r"know\b|\b(?:raise|increase|improve) (?:your|the) (?:confidence|certainty)\b|\bmake you (?:more "
        r")?(?:sure|certain|confident)|\bwhat (?:now|next)\b|\bwhat should i (?:tell|give|provide)\b|\bmeasure "
        r"(?:next|first)\b"
    )),
    ("confidence", (
        r"\bhow (?:very )?(?:sure|confident|certain|likely|convinced|probable)\b|\b(?:are "
        r")?you\b.{0,20}\b(?:sure|confident|certain|positive|convinced|serious)\b|\bconfidence\b|"
        r"\bprobability\b|\b(?:odds|chances?|likelihood)\b|\bguarantee|\breally\s?\??$|^(?:are )?(?:you "
        r")?(?:really|absolutely|100 ?%) ?(?:sure|certain)?\??$|\bdo you (?:really |honestly |truly "
        r")?(?:believe|trust|mean)\b|\bcan i (?:rely|trust|count|bet)\b|\b(?:will|would|does|is) (?:it|this|"
        r"that|<prop>|<mesh>) (?:really |actually |definitely |going to )?(?:work|help|improve|pay|make it "
        r"faster|speed)\b|^sure\s?\?+$|^certain\s?\?$"
    )),
    ("add", (
        r"\badd\b.{0,25}\b(?:proposal|list|page)\b|\bmake (?:it|that|this|<mesh>) (?:a|into a) proposal\b|\bas "
        r"a proposal\b"
    )),
    ("launch", (
        r"\blaunch\b|\bflags?\b|\b(?:maxtext|megatron|axlearn)\b|\b(?:commands?|scripts?|yaml|shell|command "
        r"?line)\b|\bhow (?:do|can|would|should|to)\b.{0,6}\b(?:run|start|use|apply|try|set|implement|"
        r"reproduce)\b.{0,12}(?:<prop>|\bit\b|\bthis\b|\bthat\b|<mesh>)|\bconfiguration (?:file|for|of <prop>)|"
        r"\bxla_flags\b"
    )),
    ("similar", (
        r"\b(?:past|previous|earlier|historical?|older) (?:\w+ )?(?:runs?|cases?|experiments?|results?|"
        r"optimi[sz]ations?|jobs?|records?)\b|\bhistory\b|\bprecedents?\b|\bsimilar\b|\bcomparable\b|\blike "
        r"(?:this|mine|ours|my|our) (?:one|run|case|experiment|job|workload)?\b|\b(?:anyone|anybody|someone|"
        r"somebody|others|people|has it|been|who|it ever|this ever)\b.{0,30}\b(?:done|tried|run|seen|tested|"
        r"worked|before)\b|\b(?:seen|tried|done) (?:this|it|that|something|anything)?.{0,20}\bbefore\b|"
        r"\brecords?\b|\bevidence from\b|\bruns are like\b|\bprior art\b"
    )),
    ("risks", (
        r"\brisk\w*|\bdown ?sides?\b|\btrade[- ]?offs?\b|\bdraw ?backs?\b|\bdanger\w*|\bgo(?:es|ing)? wrong\b|"
        r"\bcaveats?\b|\bwhat (?:do|will|would) (?:i|we) (?:lose|give up|pay)\b|\bworst case\b|"
        r"\bdisadvantages?\b|\bhow safe\b|\bis (?:it|<prop>|<mesh>|this|that) safe\b|\bcatch\b|\bcons\b|"
        r"\bbreak anything\b"
    )),
    ("why_not", (
        r"\bwhy (?:not )?(?:<mesh>|<set>)|\bwhy (?:not|no|on earth not)\b|\bwhy (?:did|do|does|would|is|are|"
        r"was|were|can|could|should|have|has) (?:you |we |i |it |there |<prop> |<mesh> |that |this |the "
        r")?(?:\w+ )?(?:not|no)\b|\bwhat is wrong with (?:<mesh>|<prop>|<set>|using|having|it|that|more|less)|"
        r"\bwhy (?:did|have|do) you (?:reject|rule|exclude|discard|drop|avoid|dismiss)|\bhow come\b|\bwhy "
        r"(?:was|is|were|are) (?:<mesh>|<prop>|it|that) (?:rejected|ruled|left|excluded|illegal|not|worse|"
        r"slower|bad)|\binstead of\b|\bwhy <prop> (?:and|rather|over|instead)|\bwhat (?:speaks|is) against\b|"
        r"\bis (?:<mesh>|<set>) (?:impossible|illegal|not allowed|not legal|not possible)"
    )),
    ("compare", r"^(?:so |and )?(?:is|are|does|do)\b.{0,60}\bthan\b"),
    ("prefer", (
        r"\b(?:think|believe|feel|guess|say|bet|reckon|find|suspect|convinced|seems?|looks?|sounds?|appears?|"
        r"intuition|gut|opinion|view|mind)\b.{0,60}\b(?:promising|better|best|faster|quicker|stronger|nicer|"
        r"good|superior|attractive|interesting|right|safer|prefer|win|wins|ahead|more sense|smarter|optimal|"
        r"ideal)\b|\b(?:i|we|would|rather|also) (?:would |do |much |really |strongly |clearly |actually "
        r")?(?:prefer|rather|like|love|favou?r|lean|go (?:with|for)|choose|pick|take|vote)\b.{0,30}(?:<prop>|"
        r"<mesh>|<set>)|(?:<prop>|<mesh>) (?:is|are|would be|will be|must be|has to be|might be|should be|"
        r"looks?|seems?|sounds?) (?:\w+ ){0,2}(?:promising|better|best|faster|superior|right|safer|good|nicer|"
        r"smarter|interesting)|\b(?:is|are|would|will)(?: not)? (?:<prop>|<mesh>) (?:not )?(?:be )?(?:more |"
        r"much )?(?:better|promising|faster|best)|\bmore promising\b|\bmore faith in\b"
    )),
    ("pressure", (
        r"\bdisagree\b|\bnot convinced\b|\bi doubt\b|\byou are (?:wrong|mistaken|lying|biased|incorrect)\b|"
        r"\b(?:that|this|it) is (?:wrong|nonsense|not right|not true|rubbish|bullshit|ridiculous|incorrect)\b|"
        r"\bdo not (?:agree|believe|think so|buy|trust)\b|^(?:no|nope|wrong|nonsense)\b|\bthink again\b|"
        r"\breconsider\b|\bare you kidding\b|\bunconvinced\b|\bnot so sure\b|\bi am the expert\b|\btrust me\b|"
        r"\bmy (?:boss|manager|lead|team)\b"
    )),
    ("compare", (
        r"\bcompar\w+\b|\bvs\b|\bdifferences? (?:between|of|to)\b|\bhow (?:do|does|is|"
        r"are)\b.{0,30}\bdiffer\w*\b|\bagainst\b.{0,30}(?:<prop>|<mesh>)|\b(?:better|worse|faster|slower|"
        r"quicker) than\b|\b(?:which|what)(?: one)?(?: of (?:them|the (?:two|three)|these|those|<prop>))? "
        r"(?:is|are|would be|has|runs?|takes?|uses?|needs?) (?:the )?(?:better|faster|fastest|quicker|quickest|"
        r"safer|safest|cheaper|least|most memory|less memory)|\bside by side\b|(?:<mesh>|<prop>) or (?:<mesh>|"
        r"<prop>)|\bhow (?:does|do) (?:<mesh>|<prop>|mine|it|that) (?:do|fare|stack|measure|look)\b"
    )),
    ("op", (
        r"<op>|\b(?:op|operation|kernel|operator|fusion)\b (?:that |which )?.{0,20}\b(?:longest|slowest|most "
        r"(?:time|of))\b|"
        r"\b(?:longest|slowest|top|biggest|largest|most expensive|costliest|hottest|heaviest) (?:single )?"
        r"(?:op|operation|kernel|operator|fusion)\b"
    )),
    ("ops", (
        r"\b(?:top|biggest|largest|longest|slowest|most expensive|costliest|hottest|heaviest|which|what|main|"
        r"list|show)\b.{0,20}\b(?:ops|operations|kernels|operators|fusions)\b|\bhot ?spots?\b"
    )),
    ("memory", (
        r"\bfits?\b|\boom\b|\bout of memory\b|\bmemory\b|\bhbm\b(?! (?:bandwidth|bound))|\bhead ?room\b|"
        r"\benough (?:room|space)\b|\bhow (?:full|many gb|much (?:ram|room))\b|\bblow up\b"
    )),
    ("rejected", (
        r"\bwhat\b.{0,20}\b(?:reject|rejected|ruled out|excluded|discarded|left out|thrown out)\b|\brejected "
        r"(?:meshes|ones|candidates)\b|\b(?:which|what) meshes (?:are|were) (?:illegal|rejected|not)\b|"
        r"\brules? (?:out|broken)\b"
    )),
    ("search", (
        r"\b(?:any|anything|something|other|more|another|else|all|best|top|further|different|"
        r"fastest)\b.{0,25}\b(?:faster|better|options?|mesh(?:es)?|candidates?|configurations?|shardings?|"
        r"ideas?|layouts?|choices?|possibilit\w+)\b|\bwhat else\b|\bfastest (?:one|possible|legal)|\bbeyond "
        r"(?:the|these) (?:three|proposals)\b|\bwhat (?:is|would be) the best (?:mesh|sharding|configuration|"
        r"layout)|\bsearch\b|\bhow many (?:meshes|candidates|configurations|options)"
    )),
    ("chips", (
        r"\b(?:fewer|less|more|half the|twice the|other|only|smaller|larger|bigger)\b.{0,20}\b(?:chips|slices?|"
        r"topology|tpus|gpus|nodes)\b|\b(?:with|on|use|say|about|if) \d[\d,]* (?:chips|tpus|gpus|slices)\b"
    )),
    ("recommend", (
        r"\brecommend\w*\b|\b(?:which|what)\b.{0,40}\b(?:start|first|begin|choose|pick|try|go with|use|take|"
        r"run|prefer|favou?rite|suggest|best)\b|\bwhat (?:would|should) (?:you|i|we) do\b|"
        r"\b(?:start|begin) with\b|\bshould (?:i|we)\b.{0,30}\b(?:start|first|begin|choose|pick|try|go with|"
        r"use|take|run|do|change)\b|\byour (?:pick|"
        r"choice|advice|suggestion|favou?rite|take|best bet)\b|\bbest (?:proposal|one|bet|choice)\b|\bwhich "
        r"(?:one|proposal|of them|of the (?:three|two))\b|\bwhat do you (?:suggest|advise|propose|think)\b|"
        r"\badvi[sc]e\b"
    )),
    ("knowledge", (
        r"^(?:and |so |but )?what (?:is|are|does|do) (?:an? |the )?(?:roofline\w*|arithmetic intensity|"
        r"operational intensity|ridge(?: point)?|collective matmul)(?: models?)?(?: mean)?[ ?.]*$"
    )),
    ("why_slow", (
        r"\bwhy\b.{0,30}\b(?:slow\w*|long|wait\w*|bad|low|idle|poor|inefficient|not faster|so much time)\b|"
        r"\bbottle ?necks?\b|\b(?:what|which)\b.{0,15}\b(?:limits?|limiting|slows?|slowing|holds? (?:it |us "
        r")?back|bound|hurts?|dominates?)\b|\bwhere\b.{0,20}\b(?:time|step|seconds)\b|\bwhat is (?:the "
        r"(?:problem|issue|matter)|wrong|slow)\b|\bdiagnos\w+|\banaly[sz]e\b|\banalysis\b|\bslow\w*\b|\bbound "
        r"by\b|\b(?:compute|memory|communication|hbm|io|input)[- ]bound\b|\broofline\b"
    )),
    ("improve", (
        r"\bfindings?\b|\bwhat (?:can|could|should) (?:i|we) (?:improve|optimi[sz]e|fix|change)|\bhow (?:can|"
        r"do|could|should) (?:i|we) (?:make|speed|improve|get|reduce|optimi[sz]e|cut|lower)|\bquick wins?\b|"
        r"\blow[- ]hanging\b|\bamdahl\b|\bhow much (?:could|can) (?:i|we|be) (?:save|gain)|\bspeed (?:it|this|"
        r"things) up\b|\bmake (?:it|this) faster\b|\bsavings?\b"
    )),
    ("communication", (
        r"\bcommunicat\w+|\bcollectives?\b|\bici\b|\bdcn\b|\ball-?(?:reduce|gather|to-all)\w*|"
        r"\breduce-?scatter\w*|\bexposed\b|\boverlap\w*|\bnetwork\b|\bnvlink\b|\bwires?\b|\bbandwidth\b"
    )),
    ("figures", (
        r"\bstep time\b|\bmfu\b|\butili[sz]ation\b|\bthroughput\b|\bduty cycle\b|\bkpis?\b|\bmetrics\b|"
        r"\bfigures\b|\bgoodput\b|\bidle\b|\bhow (?:long|fast) (?:is|does|was|are)\b(?!.*(?:<mesh>|<set>|"
        r"<prop>))|\bstraggler"
    )),
    ("explain", r"<prop>"),
    ("list", (
        r"\b(?:show|list|what are|give me|summar\w+|recap|overview|which)\b.{0,30}\b(?:proposals?|options|"
        r"suggestions|situation|everything)\b|^proposals?\??$|\bsummary\b|\bsummari[sz]e\b"
    )),
    ("run", (
        r"\b(?:what|which|how many|how large|how big)\b.{0,25}\b(?:chips?|mesh|batch|sequence length|model|"
        r"remat|precision|topology|hardware|configuration|slices|steps|tokens)\b(?!.*\b(?:should|would|best|"
        r"better)\b)|\bwhat (?:ran|runs|is running|did (?:i|we) run)\b|\bcurrent (?:mesh|configuration|setup|"
        r"sharding)\b"
    )),
    ("knowledge", (
        r"\b(?:what (?:is|are|does)|how (?:does|do|is)|explain|tell me about|when (?:should|does|is|do|to)|"
        r"meaning of|define|rule of thumb|best practices?|read about|documentation|docs|the book|paper "
        r"says?)\b.{0,60}\b(?:fsdp|zero|tensor|data|sequence|pipeline|expert|parallel\w*|shard\w*|remat\w*|"
        r"flash|attention|moe|roofline|batch|critical|arithmetic intensity|mxu|vmem|megatron|ring|gradient|"
        r"accumulation|precision|fp8|bf16|optimi[sz]er|mesh|axis|torus|xla|scheduler|latency|dcn|ici|slices?|"
        r"heads|kv|checkpoint\w*|offload\w*|context|collective matmul|model)\b"
    )),
)  # fmt: skip

#: Names of chips as people write them; which of them are known is for the answer to say.
CHIP = (
    r"(?:tpu[ -]?)?(?:v[2-9][a-z]?|tpu ?7x|mi ?\d{3}\w*|gb\d{3}|[abhlv]\d{3}(?:-\d+ ?gb)?|trillium|ironwood|"
    r"trainium\d?)"
)
#: Asks for more of what was just said.
MORE = r"(?:but |and |ok |so )*why\s?\??|how so\s?\??|(?:explain|elaborate|go on|more|tell me more|details?)[ ?.!]*"
_SO = r"^(?:and |so |but |ok )*"
_SECONDS = r"\b\d[\d.,]*\s?(?:ms|s|secs?|seconds?)\b"
_PART = (
    r"(?:hbm|memory|communication|compute|bandwidth|network|input|host|idle|arithmetic|diagnosis|verdict|bottleneck)"
)
#: Rules that name what they ask so plainly that no meaning is set against them.  They stand before all others.
PLAIN: tuple[tuple[str, str], ...] = (
    ("result", (
        rf"\b(?:measured|ran|tried|tested|profiled)\b.{{0,30}}<prop>.{{0,60}}{_SECONDS}|"
        rf"<prop>.{{0,30}}\b(?:measured|ran|got|took|takes|came out)\b.{{0,30}}{_SECONDS}"
    )),
    ("why_slow", (
        r"\b(?:sure|certain|confident|confidence|likely|probable|know)\b.{0,30}\b(?:it|this|that|step|run|limit\w*|"
        rf"bottleneck)\b (?:is|by|in|on|of)? ?(?:really )?(?:the )?{_PART}(?:[- ](?:bound|bandwidth|limited))?[ ?.!]*$|"
        r"\b(?:sure|certain|confident|confidence)\b.{0,20}\b(?:verdict|diagnosis|bottleneck)\b"
    )),
    ("recommend", (
        rf"{_SO}what (?:would|should|do|will) (?:you|i|we) (?:change|try|do|fix|tackle|run) first\b|"
        rf"{_SO}(?:which|what) (?:proposal|one) is (?:the )?best[ ?.!]*$"
    )),
    ("figures", (
        r"\bhow many (?:\w+ )?steps (?:were|was|are|did|have|has)\b.{0,20}\b(?:profiled?|measured?|recorded|captured|"
        r"run|ran|traced)\b"
    )),
    ("held", (
        rf"{_SO}what (?:did|do|have) you assume\w*[ ?.!]*$|\bwhat (?:is|was) assumed\b|\byour assumptions\b"
    )),
    ("explain", r"^(?:and|or|also|what about|how about|and what about)? ?(?:the )?<prop>(?: then)?[ ?.!]*$"),
    ("explain", rf"^(?:{MORE})$"),
    ("why_slow", (
        rf"{_SO}what (?:is |does )?(?:eat\w*|tak\w+|cost\w*|burn\w*|us\w+ up) (?:up )?(?:all )?(?:the|my|our|most of "
        r"the|that) time\b"
    )),
    ("improve", (
        r"\bhow much (?:would|could|can|might) (?:i|we|one|you|it) (?:save|gain|win)\b(?!.*(?:<prop>|<mesh>|<set>))"
    )),
    ("run", (
        rf"{_SO}(?:is|are|was|were) (?:the |my |our )?(?:weights?|params?|parameters|optimi[sz]er(?: states?)?) "
        r"(?:\w+ )?sharded\b"
    )),
    ("chip", (
        r"\b(?:chips?|accelerators?|gpus?|tpus?|device|hardware) (?:is|are|was|were)(?: actually| really| not)? "
        rf"(?:an? |the )?{CHIP}\b|\b(?:it is|we (?:use|have|run on)) (?:an? |the )?{CHIP}\b(?!.*\?)"
    )),
)  # fmt: skip

#: What may stand alone without asking for anything.
SMALL_TALK: tuple[tuple[str, str], ...] = (
    ("greeting", r"^(?:hi|hello|hey|good (?:morning|afternoon|evening|day)|greetings|hallo|hiya|yo)\b[ ,!.a-z]{0,12}$"),
    ("thanks", (
        r"^(?:ok(?:ay)?,? |great,? |cool,? |perfect,? |many |no,? )*(?:thanks|thank you|cheers|much "
        r"appreciated|nice one|well done|appreciate it|that is all)\b.{0,30}$"
    )),
    ("thanks", (
        r"^(?:great|cool|perfect|nice|awesome|excellent|good|got it|i see|makes sense|understood|fair enough|"
        r"ok|okay|alright|fine|good (?:job|point|answer|work))[ !.]*$"
    )),
    ("bye", r"^(?:bye|good ?bye|see you|later|good night)\b.{0,20}$"),
    ("no", r"^(?:nah|naw|nope|no|not really|rather not)(?:,? (?:nah|no|not really|leave it))?[ !.,]*$"),
    ("yes", r"^(?:yes|yeah|yep|sure|correct|right|exactly|of course)[ !.,]*$"),
)  # fmt: skip

_COMPILED = tuple((name, re.compile(pattern)) for name, pattern in RULES)
_PLAIN = tuple((name, re.compile(pattern)) for name, pattern in PLAIN)
_TALK = tuple((name, re.compile(pattern)) for name, pattern in SMALL_TALK)


def plain(clause: str) -> str:
    """The name of what a clause asks for in words that leave no doubt; empty where none of those rules fits."""
    return next((name for name, pattern in _PLAIN if pattern.search(clause)), "")


def of(clause: str) -> str:
    """The name of what a clause asks for; empty where no rule fits."""
    if found := plain(clause):
        return found
    bare = clause.strip(" .!")
    for name, pattern in _TALK:
        if pattern.search(bare):
            return name
    for name, pattern in _COMPILED:
        if pattern.search(clause):
            return name
    return ""
