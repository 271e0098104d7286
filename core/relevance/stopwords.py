"""Words that carry no meaning of their own in a question, Chinese (both scripts) and English."""

from __future__ import annotations

STOP_CHARACTERS = frozenset(
    "的了和是就都而及与着也还又在有被把对从到以之于为吗呢吧啊呀嘛哦哪那这它他她你我您们个么谁几很最请让给并且或但若则因所其此该什怎要会能可"
    "與著還個這們麼誰幾請讓給為嗎對從並於裡里"
)

_CHINESE = """
什么 怎么 怎样 怎么样 如何 为什么 为何 哪些 哪个 哪里 哪儿 哪种 多少 是否 是不是 有没有 能否 可否
可以 能够 应该 需要 这个 那个 这些 那些 这里 那里 这样 那样 它们 他们 她们 我们 你们 您们
自己 大家 一个 一下 一些 一种 有些 有的 没有 不是 还是 或者 以及 并且 但是 而且 因为 所以
如果 那么 然后 关于 对于 根据 按照 通过 进行 其中 之后 之前 时候 的话 请问 告诉 介绍 知道
想要 谢谢 你好 您好 什麼 怎麼 怎樣 為什麼 為何 哪裡 哪個 這個 那個 這些 那裡 這裡 沒有 還是
應該 因為 時候 請問 告訴 介紹 我們 你們 他們 它們
"""
_ENGLISH = """
a an the and or but if then else of to in on at by for from with without about into onto over under as is
are was were be been being am do does did done doing have has had having can could will would shall
should may might must i me my mine we us our you your yours he him his she her hers it its they them
their theirs this that these those there here what which who whom whose when where why how not no nor so
than too very just also please tell know say such any some s t d ll re ve m don't doesn't didn't isn't
aren't wasn't can't won't i'm i've what's it's that's
"""

STOP_WORDS = frozenset(_CHINESE.split()) | frozenset(_ENGLISH.split())
