-- The spaces, indexes and functions of streams in Tarantool. Running it again changes nothing that is there but the functions.
--
-- message    (sequence, headers, object_name, subject, create_at)
-- consumers  (durable_name, subject, last_sequence)
-- uploads    (object_name, begun_at)   objects that no message refers to yet
-- owned      (object_name)             objects that nodes have written for messages; all others are their publishers', and stay
-- leftovers  (object_name)             owned objects whose messages are gone; a node deletes the object, then its name here
--
-- Every function is a persistent one, which clients call by name. For Lua within Tarantool each is a global of that name, too: set by
-- define_globals, which this script calls, and a node that uses this Tarantool does so when it starts again.

box.schema.space.create('message', {if_not_exists = true, format = {
    {name = 'sequence', type = 'unsigned'}, {name = 'headers', type = 'map'}, {name = 'object_name', type = 'string'},
    {name = 'subject', type = 'string'}, {name = 'create_at', type = 'unsigned'},
}})
box.space.message:create_index('primary', {if_not_exists = true, type = 'TREE', parts = {'sequence'}})
box.space.message:create_index('subject', {if_not_exists = true, type = 'TREE', unique = false, parts = {'subject'}})
box.space.message:create_index('subject_sequence', {if_not_exists = true, type = 'TREE', parts = {'subject', 'sequence'}})
box.space.message:create_index('create_at', {if_not_exists = true, type = 'TREE', unique = false, parts = {'create_at'}})

box.schema.space.create('consumers', {if_not_exists = true, format = {
    {name = 'durable_name', type = 'string'}, {name = 'subject', type = 'string'}, {name = 'last_sequence', type = 'unsigned'},
}})
box.space.consumers:create_index('primary', {if_not_exists = true, type = 'TREE', parts = {'durable_name', 'subject'}})
box.space.consumers:create_index('subject', {if_not_exists = true, type = 'TREE', unique = false, parts = {'subject'}})

box.schema.space.create('uploads', {if_not_exists = true, format = {
    {name = 'object_name', type = 'string'}, {name = 'begun_at', type = 'unsigned'},
}})
box.space.uploads:create_index('primary', {if_not_exists = true, type = 'TREE', parts = {'object_name'}})

box.schema.space.create('leftovers', {if_not_exists = true, format = {{name = 'object_name', type = 'string'}}})
box.space.leftovers:create_index('primary', {if_not_exists = true, type = 'TREE', parts = {'object_name'}})

-- Objects of messages that were published before this space was there: a node's are named and described as only nodes do.
local is_first_time = box.space.owned == nil
box.schema.space.create('owned', {if_not_exists = true, format = {{name = 'object_name', type = 'string'}}})
box.space.owned:create_index('primary', {if_not_exists = true, type = 'TREE', parts = {'object_name'}})
if is_first_time then
    local function is_named_by_a_node(name)
        return #name > 33 and name:sub(-33, -33) == '/' and name:sub(-32):match('^[0-9a-f]+$') ~= nil
    end
    for _, message in box.space.message:pairs() do
        local headers = message.headers
        if is_named_by_a_node(message.object_name) and headers['penstock.size'] and headers['penstock.crc32c'] then
            box.space.owned:replace({message.object_name})
        end
    end
    for _, left in ipairs(box.space.leftovers:select()) do
        if not is_named_by_a_node(left.object_name) then
            box.space.leftovers:delete({left.object_name})
        end
    end
end

-- Stored by itself, so that an empty store does not restart at 1. A store of the original continues after its last message.
if box.sequence.message_sequence == nil then
    local last = box.space.message.index.primary:max()
    box.schema.sequence.create('message_sequence', {start = last and last[1] + 1 or 1, min = 1})
end

local functions = {}

-- Runs as one transaction, or as part of the caller's.
local atomic = [[local function atomic(work)
        if box.is_in_txn() then
            return work()
        end
        return box.atomic(work)
    end]]

functions.get_next_sequence = [[function()
    return box.sequence.message_sequence:next()
end]]

functions.publish_message = [[function(subject, object_name, headers)
    ]] .. atomic .. [[

    local function text(value)
        if value == nil then
            return ''
        elseif type(value) == 'string' then
            return value
        elseif type(value) == 'number' and value % 1 == 0 then
            return string.format('%.0f', value)
        end
        return require('json').encode(value)
    end
    local map = setmetatable({}, {__serialize = 'map'})
    if headers ~= nil then
        for name, value in pairs(headers) do
            map[tostring(name)] = text(value)
        end
    end
    return atomic(function()
        local sequence = box.sequence.message_sequence:next()
        box.space.message:insert({sequence, map, object_name, subject, os.time()})
        if box.space.uploads:delete({object_name}) ~= nil then
            box.space.owned:replace({object_name})
        end
        return sequence
    end)
end]]

-- Of a node: the object must still be announced, else it may have been taken for one that a crash left, and be deleted.
functions.publish_upload = [[function(subject, object_name, headers)
    return box.atomic(function()
        if box.space.uploads:get({object_name}) == nil then
            error('upload ' .. object_name .. ' took too long and was removed; publish it again')
        end
        return box.func.publish_message:call({subject, object_name, headers})
    end)
end]]

functions.get_message_by_sequence = [[function(sequence)
    return box.space.message:get({sequence})
end]]

functions.get_messages_by_subject = [[function(subject, start_sequence, limit)
    local found = {}
    for _, message in box.space.message.index.subject_sequence:pairs({subject, start_sequence}, {iterator = 'GE'}) do
        if message.subject ~= subject or #found >= limit then
            break
        end
        table.insert(found, message)
    end
    return found
end]]

functions.get_messages_since = [[function(start_sequence, limit)
    return box.space.message.index.primary:select({start_sequence}, {iterator = 'GE', limit = limit})
end]]

functions.get_latest_sequence_for_subject = [[function(subject)
    local last = box.space.message.index.subject_sequence:max({subject})
    return last and last.sequence or 0
end]]

functions.get_latest_sequence = [[function()
    local last = box.space._sequence_data:get({box.sequence.message_sequence.id})
    return last and last[2] or 0
end]]

functions.get_subjects = [[function()
    local found = {}
    local last = box.space.message.index.subject:min()
    while last ~= nil do
        table.insert(found, last.subject)
        last = box.space.message.index.subject:select({last.subject}, {iterator = 'GT', limit = 1})[1]
    end
    return found
end]]

functions.update_consumer_position = [[function(durable_name, subject, last_sequence)
    local old = box.space.consumers:get({durable_name, subject})
    if old == nil or old.last_sequence < last_sequence then
        box.space.consumers:replace({durable_name, subject, last_sequence})
    end
    return true
end]]

functions.rewind_consumer_position = [[function(durable_name, subject, last_sequence)
    box.space.consumers:replace({durable_name, subject, last_sequence})
    return true
end]]

functions.get_consumer_position = [[function(durable_name, subject)
    local found = box.space.consumers:get({durable_name, subject})
    return found and found.last_sequence or 0
end]]

functions.get_consumers_by_subject = [[function(subject)
    return box.space.consumers.index.subject:select({subject})
end]]

functions.get_consumers = [[function()
    return box.space.consumers:select()
end]]

functions.delete_old_messages = [[function(ttl_seconds)
    ]] .. atomic .. [[

    local deleted = {}
    local before = os.time() - ttl_seconds
    for _, message in box.space.message.index.create_at:pairs({}, {iterator = 'ALL'}) do
        if message.create_at >= before then
            break
        end
        table.insert(deleted, {sequence = message.sequence, subject = message.subject, object_name = message.object_name})
    end
    atomic(function()
        for _, gone in ipairs(deleted) do
            box.space.message:delete({gone.sequence})
            if box.space.owned:delete({gone.object_name}) ~= nil then
                box.space.leftovers:replace({gone.object_name})
            end
        end
    end)
    return #deleted, deleted
end]]

functions.begin_upload = [[function(object_name)
    box.space.uploads:replace({object_name, os.time()})
    return true
end]]

functions.get_objects_to_delete = [[function(upload_seconds, limit)
    local found = {}
    for _, left in box.space.leftovers:pairs() do
        if #found >= limit then
            return found
        end
        table.insert(found, left.object_name)
    end
    local before = os.time() - upload_seconds
    for _, upload in box.space.uploads:pairs() do
        if #found >= limit then
            return found
        end
        if upload.begun_at <= before then
            table.insert(found, upload.object_name)
        end
    end
    return found
end]]

functions.forget_objects = [[function(names)
    box.atomic(function()
        for _, name in ipairs(names) do
            box.space.leftovers:delete({name})
            box.space.uploads:delete({name})
        end
    end)
    return true
end]]

local names = {}
for name in pairs(functions) do
    table.insert(names, "'" .. name .. "'")
end
functions.define_globals = [[function()
    for _, name in ipairs({]] .. table.concat(names, ', ') .. [[}) do
        if rawget(_G, name) == nil then
            rawset(_G, name, loadstring('return ' .. box.space._func.index.name:get({name}).body)())
        end
    end
    return 2
end]]

for name, body in pairs(functions) do
    if box.schema.func.exists(name) then
        box.schema.func.drop(name)
    end
    -- It reads what others may not.
    local setuid = name == 'define_globals'
    box.schema.func.create(name, {language = 'LUA', body = body, setuid = setuid, if_not_exists = true})
    rawset(_G, name, nil)
end
box.func.define_globals:call()
return true
