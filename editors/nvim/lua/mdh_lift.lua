-- mdh-lift in Neovim before 0.11: `require("mdh_lift").setup({ trusted = true })`.  It runs beside clangd.
local M = {}

local markers = { "mdh-lift.toml", ".mdh-lift.toml", "compile_commands.json", ".git" }

local function root_of(file)
  local directory = vim.fn.fnamemodify(file, ":p:h")
  local at = directory
  while true do
    for _, marker in ipairs(markers) do
      if vim.loop.fs_stat(at .. "/" .. marker) then
        return at
      end
    end
    local up = vim.fn.fnamemodify(at, ":h")
    if up == at then
      return directory
    end
    at = up
  end
end

local clients = {} -- by root

--- Attach the server to a buffer of C or Python.
function M.attach(buffer, options)
  local root = root_of(vim.api.nvim_buf_get_name(buffer))
  if not clients[root] then
    clients[root] = vim.lsp.start_client({
      name = "mdh_lift",
      cmd = options.cmd or { "mdh-lift", "lsp" },
      root_dir = root,
      init_options = { trusted = options.trusted or false },
      on_exit = function()
        clients[root] = nil
      end,
    })
  end
  if clients[root] then
    vim.lsp.buf_attach_client(buffer, clients[root])
  end
end

--- options: `cmd` (where the command is not on the path), `trusted` (the preprocessor may run; default false).
function M.setup(options)
  options = options or {}
  vim.api.nvim_create_autocmd("FileType", {
    pattern = { "c", "python" },
    callback = function(event)
      M.attach(event.buf, options)
    end,
  })
end

return M
