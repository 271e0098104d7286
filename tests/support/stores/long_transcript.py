"""A handwritten conversation of 59 turns: a fact in turn 3, then many other topics."""

from __future__ import annotations

_LINES = """
Hello, I am planning my week.|Good, tell me what is on it.
先说说周一要做什么吧。|周一有例会，下午两点开始。
My sister's cat Momo is allergic to chicken, remember that for her visit.|Noted: Momo must not have chicken.
What is a good time for the dentist?|Early morning, before work.
How long does the train to Lyon take?|About two hours.
Which seat should I book?|A window seat on the left, for the view.
发票要保存多久？|一般保存五年。
Can I pay the rent by card?|No, only by transfer.
What is the exchange rate today?|I cannot look that up.
How do I reset my router?|Hold the button for ten seconds.
周三的会议改到几点了？|改到上午十点。
Who takes the minutes?|Anna does this month.
What was the budget for the garden?|Twelve hundred euros.
Which tree grows fastest?|A poplar.
Is the soil too wet for roses?|Roses want drainage; add sand.
打印机卡纸怎么办？|打开后盖，把纸慢慢拉出来。
What colour did we choose for the door?|Dark green.
How much paint do we need?|Two litres.
Where is the nearest recycling yard?|Behind the station.
When does it close?|At six.
报销单要附什么？|附发票原件和审批单。
Does the hotel have parking?|Yes, for a fee.
What time is breakfast?|From seven to ten.
Do I need a visa for Norway?|Not with your passport.
What should I pack for rain?|A light jacket and a cover for the bag.
怎么备份手机里的照片？|连接电脑后复制到硬盘。
How big is the hard disk?|One terabyte.
Is it encrypted?|Yes, with a passphrase.
Who has the spare key?|The neighbour on the third floor.
When is the lift repaired?|Next Tuesday.
年假还剩几天？|还剩六天。
Can I carry leave over?|Up to five days, until March.
What is the Wi-Fi name in the office?|It is printed at the entrance.
How do I book the small meeting room?|In the calendar, by its number.
Which bus goes to the museum?|Number nine.
博物馆周一开门吗？|周一闭馆。
What does a ticket cost?|Eight euros.
Is there a discount for students?|Half price.
How many pages is the report?|Forty.
When is it due?|On the last Friday of the month.
谁来校对报告？|由李雷校对。
What font do we use?|Source Han Sans.
Should figures have captions?|Yes, below the figure.
How do I export to PDF?|From the file menu.
Which recipe did we cook last time?|Lentil soup.
汤里放了什么香料？|放了孜然和姜。
How long do lentils cook?|Twenty minutes.
Can the soup be frozen?|Yes, for three months.
What is the phone's warranty?|Two years.
Where is the service desk?|On the ground floor.
电脑开机很慢怎么解决？|先关闭自启动的程序。
How much memory does it have?|Sixteen gigabytes.
Is a new battery worth it?|Yes, after four years.
What is the forecast for Saturday?|I cannot see the weather.
When does the market open?|At eight.
周末有什么安排？|周六去市场，周日休息。
Which stall sells the good bread?|The one at the corner.
Do they take cards?|Cash only.
Thank you, that is all for now.|You are welcome.
"""

TRANSCRIPT = [tuple(line.split("|")) for line in _LINES.strip().splitlines()]
"""(question, answer) pairs."""
