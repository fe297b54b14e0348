-- Run by tests/test_editors.py in a headless Neovim: what a user sees, asserted.  The file is the first argument.
local buffer = vim.api.nvim_get_current_buf()
local out = {}

local function fail(message)
  io.stderr:write("FAILED: " .. message .. "\n")
  vim.cmd("cquit 1")
end

local function check(condition, message)
  if not condition then
    fail(message .. "\n" .. vim.inspect(vim.diagnostic.get(buffer)))
  end
end

local function wait(what, condition)
  if not vim.wait(60000, condition, 20) then
    fail("waited for " .. what)
  end
end

local function codes()
  local found = {}
  for _, d in ipairs(vim.diagnostic.get(buffer)) do
    found[#found + 1] = d.code or (d.user_data and d.user_data.lsp and d.user_data.lsp.code) or "?"
  end
  table.sort(found)
  return table.concat(found, " ")
end

local function ask(method, params)
  local replies = vim.lsp.buf_request_sync(buffer, method, params, 60000)
  for _, reply in pairs(replies or {}) do
    check(not reply.error, method .. ": " .. vim.inspect(reply.error))
    return reply.result
  end
  fail("no answer to " .. method)
end

local document = { textDocument = { uri = vim.uri_from_bufnr(buffer) } }
local line = vim.fn.search("pragma mdh") - 1

-- diagnostics, of the wrong operator, at its place although the line before it holds wide characters
wait("diagnostics", function() return codes() ~= "" end)
check(codes() == "MDH404", "one finding, not " .. codes())
local d = vim.diagnostic.get(buffer)[1]
local text = vim.api.nvim_buf_get_lines(buffer, d.lnum, d.lnum + 1, true)[1]
check(d.lnum == line and text:sub(d.col + 1, d.end_col) == "pw(*)", "place of the finding")
out[#out + 1] = "diagnostics"

-- the buffer is edited, not saved
local fixed = text:gsub("pw%(%*%)", "pw(+)")
vim.api.nvim_buf_set_lines(buffer, line, line + 1, true, { fixed })
wait("new diagnostics", function() return codes() == "MDH203 MDH301" end)
out[#out + 1] = "edit"

local hover = ask("textDocument/hover", vim.tbl_extend("force", document, { position = { line = line, character = 2 } }))
check(hover.contents.value:find("md_hom%[i: n, j: m, k: p%]"), "hover: " .. hover.contents.value)
out[#out + 1] = "hover"

local lenses = ask("textDocument/codeLens", document)
check(#lenses == 1 and lenses[1].command.title == "lifted: 1 md_hom", "lens: " .. vim.inspect(lenses))
out[#out + 1] = "lens"

-- an action, applied by the editor
vim.api.nvim_buf_set_lines(buffer, line, line + 1, true, { "#pragma mdh" })
local function actions()
  local range = { start = { line = line, character = 0 }, ["end"] = { line = line, character = 5 } }
  return ask("textDocument/codeAction", vim.tbl_extend("force", document, { range = range, context = { diagnostics = {} } }))
end
local chosen
for _, action in ipairs(actions()) do
  if action.title:find("combine operators") then
    chosen = action
  end
end
check(chosen and chosen.edit, "an action with an edit")
local client = vim.lsp.get_active_clients()[1]
vim.lsp.util.apply_workspace_edit(chosen.edit, client.offset_encoding)
text = vim.api.nvim_buf_get_lines(buffer, line, line + 1, true)[1]
check(text == "#pragma mdh combine_ops(i: cc, j: cc, k: pw(+))", "the edit: " .. text)
out[#out + 1] = "action"

local items = ask("textDocument/completion", vim.tbl_extend("force", document, { position = { line = line, character = 24 } }))
check(#items > 3, "completion")
out[#out + 1] = "completion"

client.stop()
wait("the end of the server", function() return client.is_stopped() end)
io.stdout:write(table.concat(out, " ") .. "\n")
vim.cmd("qall!")
