"""What a command does with the store itself, when no server has it open."""
