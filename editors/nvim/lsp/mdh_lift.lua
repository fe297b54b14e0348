-- mdh-lift in Neovim 0.11 or later: `vim.lsp.enable("mdh_lift")`.  It runs beside clangd.
return {
  cmd = { "mdh-lift", "lsp" },
  filetypes = { "c", "python" },
  root_markers = { "mdh-lift.toml", ".mdh-lift.toml", "compile_commands.json", ".git" },
  -- true: the preprocessor may run and the configuration of the project counts.  Only for trees that you trust.
  init_options = { trusted = false },
}
