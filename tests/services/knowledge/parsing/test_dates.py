"""Discriminates: taking any date in the text for the document's; a deadline for its date; tomorrow's date."""

from __future__ import annotations

import datetime

import pytest

from core.dates import is_iso_date
from services.knowledge.parsing.dates import (
    DateClues,
    declared_date,
    document_date,
    file_day,
    labelled_date,
    title_date,
)

TODAY = datetime.date(2026, 6, 15)

LABELLED = {
    "更新时间：2015 - 12 - 25": "2015-12-25",
    "更新时间:2019-06-12 10:31:07": "2019-06-12",
    "发布时间：2021年3月5日": "2021-03-05",
    "发布日期：2021/3/5": "2021-03-05",
    "发布于 2021-03-05": "2021-03-05",
    "發布日期：2021年3月": "2021-03",
    "最后更新：2021.3.5": "2021-03-05",
    "最近更新 2021-03-05": "2021-03-05",
    "本页更新时间：2021年03月05日": "2021-03-05",
    "日期：2021-03-05": "2021-03-05",
    "日 期：二〇二一年三月五日": "2021-03-05",
    "**发布日期**：2021-03-05": "2021-03-05",
    "| 修订日期 | 2021-03-05 |": "2021-03-05",
    "来源：本站 发布时间：2020-01-02 点击数：31": "2020-01-02",
    "时间：2021-03-05 10:20 来源：新华社 浏览次数：201": "2021-03-05",
    "（发布时间：2020-01-02）": "2020-01-02",
    "成文日期：2008年10月27日": "2008-10-27",
    "发文日期：20210305": "2021-03-05",
    "修订时间：2021": "2021",
    "Published: 3 March 2021": "2021-03-03",
    "Published on March 3, 2021": "2021-03-03",
    "Published 2021-03-03 | 5 min read": "2021-03-03",
    "Posted: Mar 3, 2021": "2021-03-03",
    "Last updated March 3rd, 2021": "2021-03-03",
    "Last updated: Wed, 3 Mar 2021 10:00 GMT": "2021-03-03",
    "_Last modified: 2021-03-03T10:00:00Z_": "2021-03-03",
    "Last Revised 03-Mar-2021": "2021-03-03",
    "Updated: March 2021": "2021-03",
    "> Date: 2021-03-03": "2021-03-03",
    "Date published: 3 March 2021": "2021-03-03",
    "Release date: 2021/03/03": "2021-03-03",
    "By Jane Doe | Published 3 March 2021": "2021-03-03",
    "Last updated: 03/04/2021": "2021",
    "Revision date: 31.12.2020": "2020-12-31",
}

NO_LABEL = [
    "报名截止日期：2020-05-01",
    "考试日期：2020年6月7日",
    "出生日期：1980年3月5日",
    "下次更新时间：2027-01-01",
    "生效日期：2021-03-05",
    "时间：9月19日",
    "时间：2021年12月20日前",
    "会议时间：2021-03-05",
    "更新时间：每周一",
    "更新频率：2021",
    "发布会日期待定",
    "学校成立于1937年",
    "2021年3月5日，学校召开会议",
    "本标准发布于2018年，自2019年1月1日起实施",
    "电话：2021-8312",
    "Due date: 2021-03-05",
    "Date of birth: 3 March 1980",
    "Start date: 2021-03-05",
    "Next update: 2021-03-05",
    "Not published: 2021-03-05",
    "The policy was updated March 2021 to cover contractors.",
    "The act, last revised on 3 March 2010, applies to every person who holds a licence under it.",
    "Updated 3 times since 2019",
    "Updated: 2021 figures",
    "Up to date: 2021-03-05",
    "Published by Elsevier in 2021",
    "Copyright 2021 Wenmai",
    "Version 2021.3.2",
    "Published: 2021-13-45",
    "Published: soon",
    "Posted: 2,021 times",
    "Date",
    "on 3 March 2021 we met",
    "Update: 1.2.3",
    "",
]

TITLES = {
    "2018年招生简章": "2018",
    "中国人民大学本科招生章程（2014年实行）": "2014",
    "2018中法学院招生热点问题解答": "2018",
    "2020级培养方案": "2020",
    "2021年3月工作简报": "2021-03",
    "2021年3月5日会议纪要": "2021-03-05",
    "二〇一八年度工作报告": "2018",
    "Annual Report 2021": "2021",
    "2021 Annual Report": "2021",
    "2021 Employee Benefits Handbook": "2021",
    "FY2022 Budget": "2022",
    "Q3 2021 earnings": "2021",
    "March 2021 newsletter": "2021-03",
    "Release 1.2.0 (2021-03-05)": "2021-03-05",
    "A Survey of Retrieval (2021)": "2021",
    "2027年工作计划": "2027",
    "价格表（2023版）": "2023",
    "「2024版」价目表": "2024",
    "价格表2023版": "2023",
    "员工手册（2024年修订版）": "2024",
    "收费标准(2023年版)": "2023",
    "新课标2022年版": "2022",
    "Release notes 2024": "2024",
    "2024 Release Notes": "2024",
    "Price list 2025": "2025",
    "2024年度": "2024",
    "2024年度工作计划": "2024",
    "产品手册 v2024.1": "2024",
    "Release notes v2024.1.2": "2024",
}

UNTITLED = [
    "2030年远景目标",
    "公元2509年",
    "1644年的北京",
    "2019年和2020年对比",
    "2020-2021学年校历",
    "2000元补贴通知",
    "2000年的历史",
    "Windows Server 2019",
    "Office 2019 tips",
    "ISO 9001:2015",
    "GB 2312-1980",
    "Agenda 2030",
    "1984",
    "1984读后感",
    "2048 game",
    "PyCharm 2021.3.2",
    "Route 2021",
    "Model X2021",
    "第2021号",
    "1024程序员节",
    "90年代的音乐",
    "年度总结",
    "Room 2012",
    "RFC 2119",
    "Summer",
    "3月活动",
    "Office 2019版教程",
    "Office2019版",
    "Windows 2000版",
    "C++2011版",
    "第2021版",
    "2019版权声明",
    "2000版面",
    "v2048",
    "v2.2024",
    "App v2021.3 vs v2022.1",
    "2024-2025年度预算",
]


@pytest.mark.parametrize(("line", "date"), LABELLED.items())
def test_a_labelled_line_gives_its_date(line: str, date: str) -> None:
    assert labelled_date(line) == date


@pytest.mark.parametrize("line", NO_LABEL)
def test_a_line_without_a_label_for_the_document_gives_no_date(line: str) -> None:
    assert labelled_date(line) == ""


@pytest.mark.parametrize(("title", "date"), TITLES.items())
def test_a_title_that_names_its_year_gives_it(title: str, date: str) -> None:
    assert title_date(title, TODAY.year + 1) == date


@pytest.mark.parametrize("title", UNTITLED)
def test_a_number_in_a_title_is_not_a_year(title: str) -> None:
    assert title_date(title, TODAY.year + 1) == ""


@pytest.mark.parametrize(
    ("value", "date"),
    [
        ("2021-03-05T10:00:00+08:00", "2021-03-05"),
        ('"2021-03-05"', "2021-03-05"),
        ("2021-3-5 10:20", "2021-03-05"),
        ("20210305", "2021-03-05"),
        ("2021", "2021"),
        ("Mar 5, 2021", "2021-03-05"),
        ("draft", ""),
        ("0000-00-00", ""),
    ],
)
def test_a_field_is_read_from_its_beginning(value: str, date: str) -> None:
    assert declared_date(value) == date


@pytest.mark.parametrize(
    ("name", "date"),
    [
        ("20210305_minutes.docx", "2021-03-05"),
        ("IMG_20210305.txt", "2021-03-05"),
        ("scan20219931.pdf", ""),
        ("1234567820210305.pdf", ""),
        ("16440305.txt", ""),
        ("minutes.txt", ""),
    ],
)
def test_a_day_in_a_file_name_is_read(name: str, date: str) -> None:
    assert file_day(name) == date


@pytest.mark.parametrize(
    ("name", "date"),
    [
        ("2018年招生简章.pdf", "2018"),
        ("annual_report_2021.pdf", "2021"),
        ("minutes-2021-03-05.md", "2021-03-05"),
        ("minutes-2021-03.md", "2021-03"),
        ("2021.md", "2021"),
        ("1984.txt", ""),
        ("2087年.md", ""),
        ("v2.md", ""),
        ("20991231.md", ""),
        ("2019-nCoV.md", ""),
        ("2026销售额.xlsx", "2026"),
        ("预算2025.md", "2025"),
        ("目录-2024.md", "2024"),
        ("清单 2023 版.md", "2023"),
        ("产品价格表2026下半年.xlsx", "2026"),
        ("决算_2024年度.docx", "2024"),
        ("2000米跑步计划.md", ""),
        ("预算2023与2024.md", ""),
        ("清单2089.md", ""),
        ("合同编号20250.md", ""),
        ("安装AutoCAD 2024.md", ""),
        ("房间2019号门卡.md", ""),
        ("a.b", ""),
        ("", ""),
    ],
)
def test_a_file_name_is_read_as_a_title_is(name: str, date: str) -> None:
    assert document_date(DateClues(file_name=name), TODAY) == date


def test_a_declared_date_comes_first_and_the_file_name_last() -> None:
    head = "通知\n发布时间：2021-03-05\n正文提到2019年5月1日。"
    clues = DateClues("2018年.md", ("none", "2022-02-02"), head, ("2017年招生简章",))
    assert document_date(clues, TODAY) == "2022-02-02"
    assert document_date(DateClues("2018年.md", (), head, ("2017年招生简章",)), TODAY) == "2021-03-05"
    assert document_date(DateClues("2018年.md", (), "", ("2017年招生简章",)), TODAY) == "2017"
    assert document_date(DateClues("2018年.md"), TODAY) == "2018"


def test_a_future_date_does_not_count_except_the_year_a_title_plans_for() -> None:
    """Discriminates: not comparing with today."""
    for later in ("2026-06-17", "2026-07", "2027", "2509-01-01"):
        assert document_date(DateClues(declared=(later,)), TODAY) == ""
    for early in ("2026-06-16", "2026-06", "2026"):
        assert document_date(DateClues(declared=(early,)), TODAY) == early
    assert document_date(DateClues(titles=("2027年招生简章",)), TODAY) == "2027"
    assert (
        document_date(DateClues(declared=("2509-01-01",), head="更新时间：2020-01-01"), TODAY) == "2020-01-01"
    )


def test_only_the_beginning_is_read_and_a_sentence_is_not_a_title() -> None:
    below = "\n".join(["标题", *(f"第{at}段" for at in range(20)), "更新时间：2020-01-01"])
    assert document_date(DateClues(head=below), TODAY) == ""
    assert document_date(DateClues(head="2018年，我们公司成立。\n之后发展很快。"), TODAY) == ""
    assert document_date(DateClues(head="2018年招生简章\n一、总则"), TODAY) == "2018"
    assert document_date(DateClues("a.log", head="2021-03-05 10:00 INFO start"), TODAY) == ""


def test_any_date_found_is_an_iso_date() -> None:
    assert all(map(is_iso_date, [*LABELLED.values(), *TITLES.values()]))
