"""Things that people say about themselves, each with questions for it in other words, and unrelated
questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Attribute:
    """`statement` is a template for a value; `questions` ask for it in other words than the statement."""

    name: str
    statement_zh: str
    statement_en: str
    values_zh: tuple[str, ...]
    values_en: tuple[str, ...]
    questions_zh: tuple[str, ...]
    questions_en: tuple[str, ...]


ATTRIBUTES: tuple[Attribute, ...] = (
    Attribute("name", "用户的名字是{}", "The user's name is {}", ("张三", "李四", "王芳", "陈静"), ("Alex",
    "Sam", "Maria", "Chen"), ("我叫什么？", "你知道怎么称呼我吗"), ("What am I called?", "Who am I?")),
    Attribute("department", "用户的部门是{}", "The user's department is {}", ("财务部", "市场部", "法务部"),
    ("Finance", "Legal", "Marketing"), ("我在哪个部门？", "我属于什么团队"), ("Which team am I in?",
    "What department do I belong to?")),
    Attribute("place", "用户住在{}", "The user lives in {}", ("上海", "成都", "杭州"), ("Berlin", "Oslo",
    "Porto"), ("我家在哪里？", "我住在哪个城市"), ("Where is my home?", "Which city do I live in?")),
    Attribute("role", "用户的职位是{}", "The user's job is {}", ("工程师", "会计", "采购经理"), ("nurse",
    "accountant", "buyer"), ("我是做什么工作的？", "我的岗位是什么"), ("What do I do for a living?",
    "What is my profession?")),
    Attribute("desk", "用户的工位是{}", "The user's desk is {}", ("302", "415"), ("302", "415"),
    ("我坐在哪里办公？", "我的座位号是多少"), ("Where do I sit at work?", "What is my seat number?")),
    Attribute("allergy", "用户对{}过敏", "The user is allergic to {}", ("花生", "海鲜", "青霉素"), ("peanuts",
    "seafood", "penicillin"), ("我有什么不能吃的？", "我对什么东西过敏"), ("What must I not eat?",
    "What am I allergic to?")),
    Attribute("drink", "用户喜欢喝{}", "The user likes to drink {}", ("红茶", "美式咖啡"), ("black tea",
    "espresso"), ("我爱喝什么？", "给我点杯我喜欢的饮料"), ("What is my favourite drink?",
    "Order me a drink I like")),
    Attribute("birthday", "用户的生日是{}", "The user's birthday is {}", ("三月三日", "十月一日"), ("3 March",
    "1 October"), ("我哪天出生？", "我什么时候过生日"), ("When was I born?",
    "When do I celebrate my birthday?")),
    Attribute("manager", "用户的主管是{}", "The user's manager is {}", ("刘洋", "周敏"), ("Olivia", "Daniel"),
    ("我的上级是谁？", "谁是我的领导"), ("Who is my boss?", "Who do I report to?")),
    Attribute("pet", "用户养了一只叫{}的猫", "The user has a cat called {}", ("咪咪", "团子"), ("Otto",
    "Luna"), ("我的宠物叫什么？", "我家猫的名字"), ("What is my pet called?", "What is the name of my cat?")),
    Attribute("phone", "用户的分机号是{}", "The user's extension is {}", ("8012", "8377"), ("8012", "8377"),
    ("打我办公室电话拨几号？", "我的分机是多少"), ("Which number reaches my office phone?",
    "What is my extension?")),
    Attribute("project", "用户负责的项目是{}", "The user's project is {}", ("星河计划", "北极星"),
    ("Northstar", "Blue Harbor"), ("我在做哪个项目？", "我手上的项目叫什么"),
    ("What project am I working on?", "Which project do I run?")),
    Attribute("commute", "用户每天坐{}上班", "The user commutes by {}", ("地铁", "班车"), ("train",
    "bicycle"), ("我怎么去公司？", "我上班用什么交通工具"), ("How do I get to work?",
    "What do I ride to the office?")),
    Attribute("school", "用户毕业于{}", "The user graduated from {}", ("浙江大学", "武汉大学"),
    ("Leiden University", "MIT"), ("我在哪儿上的大学？", "我的母校是哪所"), ("Where did I go to university?",
    "What is my alma mater?")),
    Attribute("language", "用户正在学{}", "The user is learning {}", ("西班牙语", "日语"), ("Spanish",
    "Japanese"), ("我在学什么语言？", "我最近学哪门外语"), ("What language am I studying?",
    "Which foreign language do I study?")),
    Attribute("meeting", "用户每周{}开组会", "The user has a team meeting every {}", ("二", "四"), ("Tuesday",
    "Thursday"), ("我的组会在星期几？", "我们组什么时候开会"), ("On which day is my team meeting?",
    "When does my team meet?")),
    Attribute("car", "用户的车牌是{}", "The user's licence plate is {}", ("浙A12345", "沪B67890"),
    ("AB-123-C", "XY-987-Z"), ("我车的牌照号是多少？", "我的车牌号"), ("What is the plate of my car?",
    "What is my licence plate?")),
    Attribute("computer", "用户用的电脑是{}", "The user's laptop is a {}", ("ThinkPad X1", "MacBook Air"),
    ("ThinkPad X1", "MacBook Air"), ("我的笔记本是什么型号？", "我用哪款电脑"), ("Which laptop do I have?",
    "What computer do I use?")),
    Attribute("sport", "用户周末去{}", "The user goes {} at weekends", ("爬山", "游泳"), ("climbing",
    "swimming"), ("我周末做什么运动？", "我休息日有什么爱好"), ("What sport do I do at the weekend?",
    "What do I do on Saturdays?")),
    Attribute("format", "用户喜欢用{}看资料", "The user prefers to read {}", ("表格", "要点列表"), ("tables",
    "bullet points"), ("我喜欢哪种排版？", "我偏好什么形式的资料"), ("Which format do I prefer?",
    "How do I like to read things?")),
)  # fmt: skip

# Held out at first; then used to fit the threshold for questions that are not about the person.
MORE: tuple[Attribute, ...] = (
    Attribute("blood", "用户的血型是{}", "The user's blood type is {}", ("A型", "O型"), ("A", "O"),
    ("我是什么血型？", "如果要输血，我是哪一型"), ("What blood type do I have?", "Which blood group am I?")),
    Attribute("shoes", "用户穿{}码的鞋", "The user wears size {} shoes", ("42", "38"), ("42", "38"),
    ("我的鞋买多大的？", "我穿几码鞋"), ("What size are my feet?", "Which shoes fit me?")),
    Attribute("hometown", "用户的老家在{}", "The user grew up in {}", ("长沙", "烟台"), ("Ghent", "Bergen"),
    ("我是哪里人？", "我在什么地方长大的"), ("Where am I from?", "Where did I spend my childhood?")),
    Attribute("instrument", "用户会弹{}", "The user plays the {}", ("钢琴", "吉他"), ("piano", "guitar"),
    ("我会什么乐器？", "我平时演奏什么"), ("Which instrument do I play?", "What music do I make?")),
    Attribute("spouse", "用户的妻子叫{}", "The user's wife is called {}", ("赵敏", "林静"), ("Anna", "Eva"),
    ("我爱人叫什么名字？", "我太太是谁"), ("Who am I married to?", "What is my wife's name?")),
    Attribute("deadline", "用户的论文在{}月交", "The user's thesis is due in {}", ("六", "九"),
    ("June", "May"),
    ("我的毕业论文什么时候截止？", "我哪个月要交论文"), ("When do I have to hand in my thesis?",
    "In which month is my thesis due?")),
    Attribute("gym", "用户每周一去{}健身", "The user trains at {} on Mondays", ("力美", "乐刻"),
    ("FitHub", "Basic"),
    ("我在哪家健身房锻炼？", "我星期一去哪里运动"), ("Which gym do I go to?", "Where do I work out?")),
    Attribute("printer", "用户用的打印机是{}", "The user's printer is the {}", ("三楼的", "前台的"),
    ("one on floor 3", "one at reception"), ("我打印用哪台机器？", "我的文件在哪里打印"),
    ("Where do my prints come out?", "Which printer do I use?")),
    Attribute("lunch", "用户中午在{}吃饭", "The user has lunch at {}", ("二食堂", "面馆"), ("the canteen",
    "Joe's Diner"), ("我午餐去哪儿解决？", "我一般去哪家吃午饭"), ("Where do I eat at noon?",
    "Where do I usually grab a bite at midday?")),
    Attribute("seat", "用户坐飞机要靠{}的座位", "The user wants {} seats on planes", ("窗", "过道"),
    ("window", "aisle"), ("订机票时给我选什么位置？", "我飞的时候喜欢坐哪里"),
    ("Which place should be booked for my flight?", "Where do I want to sit when I fly?")),
    Attribute("diet", "用户吃{}", "The user is {}", ("全素", "清真"), ("vegetarian", "vegan"),
    ("我的饮食有什么讲究？", "请我吃饭要注意什么"), ("What diet do I follow?", "Do I eat meat?")),
    Attribute("daughter", "用户的女儿叫{}", "The user's daughter is called {}", ("朵朵", "小满"), ("Mila",
    "Ida"), ("我孩子的名字是什么？", "我闺女叫啥"), ("What is my child's name?", "Who is my little girl?")),
    Attribute("hours", "用户早上{}点到岗", "The user starts work at {}", ("八", "九"), ("8", "9:30"),
    ("我几点上班？", "我每天什么时候开始工作"), ("When does my working day begin?",
    "At what time am I in the office?")),
    Attribute("editor", "用户写代码用{}", "The user writes code in {}", ("Vim", "PyCharm"), ("Vim",
    "PyCharm"), ("我的编辑器是哪个？", "我平时拿什么编程"), ("Which editor do I use?",
    "What do I program with?")),
    Attribute("supplier", "用户的主要供应商是{}", "The user's main supplier is {}", ("恒达", "瑞丰"),
    ("Norvik", "Lumen"), ("我们主要从谁那里进货？", "我最常跟哪家拿货"), ("Who do I buy most from?",
    "Which vendor do I mostly order from?")),
    Attribute("trip", "用户下个月去{}出差", "The user travels to {} next month", ("深圳", "西安"), ("Lyon",
    "Graz"), ("我接下来的差旅目的地是哪里？", "我下月要飞哪儿"), ("Where is my next business trip?",
    "Which town will I visit soon for work?")),
    Attribute("dentist", "用户的牙医姓{}", "The user's dentist is Dr {}", ("方", "陆"), ("Weber", "Costa"),
    ("给我看牙的大夫是谁？", "我补牙找谁"), ("Who looks after my teeth?", "Which doctor fills my cavities?")),
    Attribute("music", "用户爱听{}", "The user listens to {}", ("爵士乐", "京剧"), ("jazz", "opera"),
    ("放点我喜欢的音乐，放什么？", "我的歌单是什么风格"), ("What music am I into?",
    "Which kind of songs do I put on?")),
    Attribute("insurance", "用户的医疗保险在{}", "The user's health insurance is with {}", ("平安", "太平洋"),
    ("Allianz", "Helvetia"), ("我的医保是哪家公司的？", "我看病由谁报销"), ("Who insures me?",
    "Which company pays when I am ill?")),
    Attribute("bag", "用户的行李箱是{}的", "The user's suitcase is {}", ("红色", "墨绿色"), ("red", "green"),
    ("我的箱子什么颜色？", "在机场怎么认出我的行李"), ("What colour is my luggage?",
    "How do I recognise my bag at the airport?")),
)  # fmt: skip

# Held out: nobody looked at these before they were measured.
HELD_OUT: tuple[Attribute, ...] = (
    Attribute("height", "用户身高{}厘米", "The user is {} cm tall", ("172", "185"), ("172", "185"),
    ("我有多高？", "我个子是多少"), ("How tall am I?", "What is my height?")),
    Attribute("garden", "用户在阳台上种了{}", "The user grows {} on the balcony", ("番茄", "薄荷"),
    ("tomatoes", "mint"), ("我家种了什么？", "我养的是什么植物"),
    ("What do I grow at home?", "Which plants do I keep?")),
    Attribute("budget", "用户今年的预算是{}万元", "The user's budget this year is {} euros", ("三十", "五十"),
    ("30,000", "50,000"), ("我今年能花多少钱？", "我手里的经费有多少"), ("How much may I spend this year?",
    "How much money do I have for the year?")),
    Attribute("mentor", "用户的导师是{}", "The user's mentor is {}", ("何清", "孙磊"), ("Priya", "Jonas"),
    ("谁带我？", "我师父是谁"), ("Who guides me?", "Who is teaching me the job?")),
    Attribute("paper", "用户每天早上看{}", "The user reads the {} every morning", ("参考消息", "财经日报"),
    ("Guardian", "Times"), ("我平时看什么报？", "我起床后读什么"), ("Which newspaper do I take?",
    "What do I read over coffee?")),
    Attribute("parking", "用户的车位是{}", "The user parks in bay {}", ("B12", "C07"), ("B12", "C07"),
    ("我的车停哪里？", "我停车停几号"), ("Where is my car?", "Which parking space is mine?")),
    Attribute("breakfast", "用户早餐吃{}", "The user has {} for breakfast", ("豆浆油条", "燕麦"), ("porridge",
    "toast"), ("我早饭吃什么？", "我早上一般吃啥"), ("What do I eat in the morning?",
    "What is my first meal of the day?")),
    Attribute("joined", "用户{}年入职", "The user joined the company in {}", ("2015", "2019"),
    ("2015", "2019"), ("我什么时候进公司的？", "我来这里多少年了"),
    ("When did I start here?", "Since when have I been employed?")),
    Attribute("keyboard", "用户用{}键盘", "The user types on a {} keyboard", ("机械", "静音"), ("mechanical",
    "silent"), ("我打字用的是什么？", "我的键盘是哪种"), ("What do I type on?", "Which keyboard do I have?")),
    Attribute("zone", "用户在{}时区", "The user's time zone is {}", ("东八", "东一"), ("UTC+8", "UTC+1"),
    ("我这边比格林尼治快几小时？", "约会议时我按什么时间"), ("What time zone am I in?",
    "Which clock do I live by?")),
)  # fmt: skip

UNRELATED_ZH = (
    "巴黎圣母院是哪一年建成的？", "怎么报销差旅费？", "解释一下父子链", "帮我写一封道歉信", "光速是多少？",
    "公司的退货政策是什么？",
    "Python 里怎么读取文件？", "会议室怎么预订？", "一公里等于多少米？", "请翻译这句话", "年假怎么申请？",
    "这份合同的违约金是多少？",
    "数据库怎么备份？", "明天会下雨吗？", "什么是量子纠缠？", "发票抬头写什么？", "推荐一部电影",
    "服务器端口是多少？",
)  # fmt: skip
UNRELATED_EN = (
    "When was the Eiffel Tower built?", "How do I claim travel expenses?", "Explain the parent chain",
    "Write an apology letter",
    "What is the speed of light?", "What is the refund policy?", "How do I read a file in Python?",
    "How do I book a meeting room?",
    "How many metres are in a mile?", "Translate this sentence", "How do I apply for leave?",
    "What is the penalty in this contract?",
    "How do I back up the database?", "Will it rain tomorrow?", "What is quantum entanglement?",
    "What goes on the invoice?",
    "Recommend a film", "What port does the server use?",
)  # fmt: skip
UNRELATED_MORE = (
    "珠穆朗玛峰有多高？", "办公用品去哪里领？", "总结一下这份报告", "供应商准入要哪些材料？",
    "把这段话改得礼貌一点",
    "哪天发工资？", "什么叫复利？", "公司班车几点发车？", "列出三种排序算法",
    "保修期多长？", "离职流程是什么？",
    "水的沸点是多少？", "打印机卡纸怎么办？", "给我讲个笑话", "投诉电话是多少？", "食堂几点开门？",
    "How tall is Mount Everest?", "Where do I get office supplies?", "Summarise this report",
    "What does a vendor need for approval?", "Make this paragraph more polite", "When are salaries paid?",
    "What is compound interest?", "List three sorting algorithms", "How long is the warranty?",
    "How does offboarding work?", "At what temperature does water boil?", "The printer is jammed, what now?",
    "Tell me a joke", "What is the hotline for complaints?", "When does the canteen open?",
    "Who wrote Hamlet?",
)  # fmt: skip
UNRELATED_HELD_OUT = (
    "长城有多长？", "差旅超标怎么处理？", "用一句话解释递归", "合同在哪里盖章？", "报价单的有效期是多久？",
    "如何重置路由器？",
    "三角形内角和是多少？", "把下面的话翻成英文", "夜班补贴怎么算？", "什么是区块链？", "仓库几点关门？",
    "列个会议议程",
    "How long is the Great Wall?", "What happens if travel costs exceed the limit?",
    "Explain recursion in one sentence", "Where do contracts get stamped?", "How long is a quote valid?",
    "How do I reset the router?", "What is the sum of a triangle's angles?", "How is the night shift paid?",
    "What is a blockchain?", "When does the warehouse close?", "Draft a meeting agenda",
    "Which form do I need for a refund?",
)  # fmt: skip
# By name: the attributes of a person, and unrelated questions.
KINDS = {
    "first": (ATTRIBUTES, (*UNRELATED_ZH, *UNRELATED_EN)),
    "more": (MORE, UNRELATED_MORE),
    "held-out": (HELD_OUT, UNRELATED_HELD_OUT),
}


@dataclass(frozen=True, slots=True)
class Person:
    """`facts` maps attribute names to statements, all in one language."""

    owner: str
    chinese: bool
    facts: dict[str, str]


def people(number: int, random: Random, attributes: Sequence[Attribute] = ATTRIBUTES) -> Sequence[Person]:
    """Return `number` people; every other one speaks Chinese."""
    return [
        Person(
            f"person-{at}",
            at % 2 == 0,
            {
                each.name: (each.statement_zh if at % 2 == 0 else each.statement_en).format(
                    random.choice(each.values_zh if at % 2 == 0 else each.values_en)
                )
                for each in attributes
            },
        )
        for at in range(number)
    ]
