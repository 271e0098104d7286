"""Operations of commands on a store that no server has open."""
