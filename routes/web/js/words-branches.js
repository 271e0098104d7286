/** The words of the line that leads to a session's other branches. */

export const zh = {
  branches: "这段对话的其他分支",
  earlierBranches: "更早的对话 ({n})",
  openBranch: "打开 {time} 的对话",
  newestBranch: "最新的对话",
};

export const en = {
  branches: "Other branches of this conversation",
  earlierBranches: "Earlier conversations ({n})",
  openBranch: "Open the conversation of {time}",
  newestBranch: "Newest conversation",
};
