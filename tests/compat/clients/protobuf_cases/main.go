// Prints, as JSON, the tables of test cases in protocompile's own tests: .proto files, and the error that each must give.
package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
)

// Case is one entry of a table. An empty error says that the files are valid.
type Case struct {
	Name  string     `json:"name"`
	Files [][]string `json:"files"` // name and text, in their order
	Error string     `json:"error"`
	// Differs is set where protoc judges otherwise.
	Differs bool `json:"differs"`
}

func main() {
	cases := []Case{}
	for _, path := range os.Args[1:] {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			panic(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			entry, ok := node.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			name, isText := text(entry.Key)
			fields, isStruct := entry.Value.(*ast.CompositeLit)
			if !isText || !isStruct || fields.Type != nil {
				return true
			}
			if one := read(name, fields); len(one.Files) > 0 {
				cases = append(cases, one)
			}
			return false
		})
	}
	if err := json.NewEncoder(os.Stdout).Encode(cases); err != nil {
		panic(err)
	}
}

func read(name string, fields *ast.CompositeLit) Case {
	one := Case{Name: name}
	for _, element := range fields.Elts {
		field, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, ok := field.Key.(*ast.Ident)
		if !ok {
			continue
		}
		switch key.Name {
		case "contents":
			if content, ok := text(field.Value); ok {
				one.Files = append(one.Files, []string{"test.proto", content})
			}
		case "input":
			one.Files = files(field.Value)
		case "expectedErr":
			one.Error, _ = text(field.Value)
		case "expectedDiffWithProtoc":
			one.Differs = true
		}
	}
	return one
}

func files(value ast.Expr) [][]string {
	found := [][]string{}
	table, ok := value.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	for _, element := range table.Elts {
		entry, ok := element.(*ast.KeyValueExpr)
		if !ok {
			return nil
		}
		name, named := text(entry.Key)
		content, written := text(entry.Value)
		if !named || !written {
			return nil
		}
		found = append(found, []string{name, content})
	}
	return found
}

func text(value ast.Expr) (string, bool) {
	switch value := value.(type) {
	case *ast.BasicLit:
		if value.Kind == token.STRING {
			content, err := strconv.Unquote(value.Value)
			return content, err == nil
		}
	case *ast.BinaryExpr:
		left, isLeft := text(value.X)
		right, isRight := text(value.Y)
		return left + right, isLeft && isRight && value.Op == token.ADD
	}
	return "", false
}
